"""The intra-op pass: a stage on a logical mesh becomes a sharding problem, and the problem a checked solution.

In the order of imports, lowest first (a room imports rooms above it in this list only):

    problem                                         the values: problem, solution, memory limit
    stage                                           where problems come from: stages of a graph
    reduction                                       exact simplification
    elimination                                     orders of min-plus variable elimination
    bounds                                          dual bounds by message passing, pruning, coordinate descent
    ilp                                             Eq. 1 as an ILP in PuLP
    memory, composition                             prices of memory; all layer ranges of a mesh together
    solve                                           `solve`: the steps of each solver
    solve_limited, range_bounds                     under a memory limit; lower bounds of all layer ranges, from short
                                                    runs of layers

`tuning` holds the constants of `solve` and `solve_limited`; every room has a `tuning` of its own. It imports
nothing.

Read `problem.sharding_problem`, `stage.stage_problem` and `solve` first. Above `sharding` and `cost`; pricing, search
and the planner stand above this package and are never imported here, nor are `iopddl` (files of the contest, and a
search for them by a deadline) and `formulations` (other formulations of a stage, for the lesson).
"""
