"""The hosts that a Dask scheduler has: found, compared, their links measured, and a cluster made of them.

    from alpa_explore import attach, plan
    nodes = attach("tcp://10.0.0.1:8786")     # hosts, devices, versions, links: seconds
    plan("gpt-tiny", nodes.cluster(), num_microbatches=8)

Read in this order:

    tuning         sizes and time limits of the measurements
    hosts          a host: its devices, memory and versions; in what hosts differ; a link between two: latency, and
                   seconds by message size; both as rows of tables
    worker_side    what runs on a worker: describe its host, listen, transfer
    connection     which schedulers may be connected to, or are started by SSH or in an allocation of Slurm
    cluster_of     the cluster of equal hosts, by the device file that is kept for such a machine, or why there is none
    attach         the hosts of a scheduler and their links, measured: `attach`, and its result `Attached`, also as a
                   cluster file, which `--cluster FILE` reads
    profile        time the kernels of a plan on the hosts, or here: `profile`

Nothing here starts a run. Dask and torch are imported when they are needed.

Concepts that others use: Attached.
"""
