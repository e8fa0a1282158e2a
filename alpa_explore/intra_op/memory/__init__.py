"""Time against memory: choices within a limit, and the frontier of (seconds, bytes).

    price_search     `price_search`: a good choice within a MemoryLimit and a lower bound, by Lagrange multipliers
    price_kernels    its compiled descent under a penalty for memory
    timeline         `timeline`: the items of a memory limit as arrays, and messages at prices of memory
    pareto           `pareto_frontier`: every non-dominated (seconds, bytes), by elimination over Pareto sets
    pareto_bounds    which partial choices can still reach the frontier: keeps those sets small
    pareto_kernels   the compiled sums and unions of Pareto sets
    tuning           rounds, step lengths, and the size at which the exact frontier is given up

`price_search` handles limits at any time and problems of any size but need not close the gap; `pareto_frontier` is
exact but only for one sum of bytes and narrow problems. Imports `problem`, `reduction`, `elimination`, `bounds`, `ilp`
and `numerics`; `solve_limited` combines this room with the ILP.
"""
