"""The values of the intra-op pass: what a solver is given and what it returns. Nothing here solves anything.

    sharding_problem   ShardingProblem: Eq. 1 of the paper as cost vectors of nodes and cost matrices of edges; problems
                       derived from one: fewer strategies per node, or legality without costs
    solution           ShardingSolution and Status: the choice, its objective, the proven lower bound
    memory_limit       MemoryLimit: a limit on the bytes held at any time, which Eq. 1 does not have
    timeline           `timeline`: the items of a memory limit as arrays, at the times that matter

A problem knows nothing of tensors, meshes or stages; `stage` builds problems, the package `iopddl` reads them from
files. This room imports `numerics` only.
"""
