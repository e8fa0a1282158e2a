"""Commands about running plans on devices.

    launch        train with a plan; `RUN` and `requested_schedule` are used by `verify`
    verify        compare the training of a plan, or of random plans, with one process
    compare_run   measured and predicted times of a run
    logs          what the ranks of a run print
    calibrate     measure the devices, or refit to runs
    profile       time the kernels of a plan on the attached device
    program       the instructions of every rank
    nodes         the hosts that are attached by Dask, and their links

A room of commands must not import another one.
"""
