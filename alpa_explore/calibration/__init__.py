"""Measure the figures of a device and its links, or fit them to runs: to their tasks, or to the times of iterations.

Read in this order:

    tuning            sizes and weights of the measurements and fits
    least_squares     non-negative least squares for a few unknowns
    measurements      the raw points that were measured
    measuring         time kernels, the host and links on the attached devices
    microbenchmarks   a process on each device, which measures all of that
    pattern_search    least squares for formulas without derivatives
    kernel_fit        a few figures for all shapes of products, attention and memory-bound kernels
    link_fit          the figures of links inside a node and of a network, from bandwidths of collectives
    device_file       from measured points to a device file, which `--cluster` reads
    refit             fit launch time, efficiencies and links to observed tasks
    from_run          the observations of finished training runs
    runs/             fit the figures of all devices and software to thousands of measured runs

A microbenchmark measures kernels alone; a run measures them inside a program, between other kernels. This package must
not import the runtime: it reads the files that a run has left.
"""
