"""The intra-op pass: a stage on a logical mesh becomes a sharding problem, and the problem a checked solution.

In the order of imports, lowest first (a room imports rooms above it in this list only):

    problem                                         the values: problem, solution, memory limit
    stage, iopddl                                   where problems come from: stages of a graph; files of the contest
    reduction                                       exact simplification
    elimination                                     min-plus variable elimination
    bounds                                          dual bounds by message passing, pruning, coordinate descent
    ilp                                             Eq. 1 as an ILP: PuLP, HiGHS, toulbar2
    memory, composition                             time against memory; all layer ranges of a mesh together
    solve                                           `solve`: the steps of each solver
    anytime                                         under a memory limit by a deadline: condensing, annealing, a bound
    solve_limited, regrets, conflicts               under a memory limit; costs of alternatives; why it is infeasible
    warm_up                                         kernels of the search under a memory limit, compiled ahead
    formulations                                    other formulations of the same stage, compared with the exact one

`tuning` holds the constants of `solve`, `solve_limited` and `regrets`; every room has a `tuning` of its own. It imports
nothing.

Read `problem.sharding_problem`, `stage.stage_problem` and `solve` first. Above `sharding` and `cost`; pricing, search
and the planner stand above this package and are never imported here.
"""
