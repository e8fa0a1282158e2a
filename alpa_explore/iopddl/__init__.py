"""The ASPLOS 2025 contest on intra-operator parallelism (IOPDDL): its files, and the best choice by a deadline.

In the order of imports, lowest first:

    files                         `read_problem`: a file checked and turned into a ShardingProblem and a MemoryLimit
    evaluator                     `evaluate_file`: cost and peak of a choice, computed from the file alone
    condense                      followers become part of their neighbours
    profile_kernels               bytes above the limit at each time, compiled
    field_kernels                 the cost of every strategy given the other nodes, kept up under moves, compiled
    anneal_kernels, tree_kernels  moves of single nodes and chains; of trees by dynamic programming; compiled
    walk                          `Walk`: a choice that moves; edges and memory as the kernels read them
    anneal                        messages under prices of memory, then annealing within the limit
    search                        `solve_within`: all of it, with a bound in a second thread; its kernels, ahead
    reasons                       `why_infeasible`: nodes in conflict, or the least memory limit

`tuning` holds the constants. The evaluator shares no code with the solvers, so that it can check them. Read `search`
first. For `alpa-explore solve`: the planner does not import this package. Above `intra_op`.
"""
