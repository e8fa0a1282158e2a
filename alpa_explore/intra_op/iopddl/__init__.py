"""Sharding problems as files, in the format of the ASPLOS 2025 contest on intra-operator parallelism (IOPDDL).

    files       `read_problem`: a file checked and turned into a ShardingProblem and a MemoryLimit
    evaluator   `evaluate_file`: cost and peak of a choice, computed from the file alone
    tuning      limits on the size of a file

The evaluator shares no code with the solvers, so that it can check them. Imports `problem` and `numerics` only.
"""
