"""Eq. 1 of the paper as an integer linear program, by different back ends; all return a checked ShardingSolution.

    enumerated_ilp   the reference formulation in PuLP, with HiGHS or CBC; also as Alpa's own code writes it
    highs_direct     the same program passed to HiGHS as one sparse matrix; `least_limit` for memory
    toulbar2         the same problem as a cost function network (branch and bound, an extra)
    quiet_highs      HiGHS without its banner, for itself and for PuLP
    memory_rows      a memory limit as rows of an ILP
    ilp_answer       scaling of the costs, and `conclude`: a raw answer checked and turned into a solution
    tuning           scales and tolerances that keep the answers exact

To add a back end, write `solve_…(problem, *, time_limit_seconds, gap, memory)`, end it in `conclude`, and register it
in `intra_op.solve` (and `solve_limited`, when it takes a memory limit). Imports `problem`, `bounds` and `numerics`.
"""
