"""Eq. 1 of the paper as an integer linear program; every answer is a checked ShardingSolution.

    enumerated_ilp   Eq. 1 in PuLP, with HiGHS or CBC, and as Alpa's own code writes it; its relaxation; `least_limit`
    ilp_answer       scaling of the costs; Answer, and `checked`: an answer of any solver as a solution
    tuning           scales and tolerances that keep the answers exact

To add a back end, write `solve_…(problem, *, time_limit_seconds, gap, memory)`, end it in `checked`, and register it
in `intra_op.solve` (and `solve_limited`, when it takes a memory limit). Imports `problem`, `bounds` and `numerics`.
"""
