"""Measure the figures of a device and its links, or fit them to the tasks of a run.

Read in this order:

    tuning            sizes and weights of the measurements and fits
    least_squares     least squares for a few unknowns, linear and of any formula
    measurements      the raw points that were measured
    measuring         time kernels, the host and links on the attached devices
    microbenchmarks   a process on each device, which measures all of that
    kernel_fit        a few figures for all shapes of products, attention and memory-bound kernels
    device_file       from measured points to a device file, which `--cluster` reads
    refit             fit launch time, efficiencies and links to observed tasks
    profiling/        time the kernels that a plan and its search ask for
    from_run          the observations of finished training runs

A microbenchmark measures kernels alone; a run measures them inside a program, between other kernels. This package must
not import the runtime: it reads the files that a run has left.

Concepts that others use: Measurements, NotTimed, Profile, ProfileProgress, Profiling, Timed.
"""
