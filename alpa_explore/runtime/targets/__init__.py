"""The launch targets: where the ranks of a run are started.

Read in this order:

    local          an agent on this machine
    scripts        scripts for torchrun and Slurm, and a PyTorchJob whose pods run one, which the user starts
    network        what a script asks about its machine: the interface towards another, a free port
    mirror         copy what is new in the folder of a run from a host to the launcher
    dask_host      what runs on a Dask worker: receive a job, run its agent, send its reports
    dask_cluster   the workers as hosts for ranks: versions, devices, links between them
    dask_workers   an agent on each worker of a Dask cluster
    target         the targets by name

Every target checks that a plan can run there before anything is written, and returns ranks that can be polled and
stopped. To add a target, write a module with a check and a start that returns an object with `poll` and `stop`, and
enter it in `TARGETS` and `find_target`. Ranks that another launcher starts run
`python -m alpa_explore.runtime.ranks.worker FOLDER`.

dask is imported only when that target is used. This room must not import `runtime.ranks`: it starts agents by command
line.
"""
