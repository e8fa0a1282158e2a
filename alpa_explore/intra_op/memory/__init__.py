"""Time against memory: choices within a limit, and the frontier of (seconds, bytes).

    price_search     `price_search`: a good choice within a MemoryLimit and a lower bound, by Lagrange multipliers
    price_kernels    its compiled descent under a penalty for memory
    pareto           `pareto_frontier`: every non-dominated (seconds, bytes), by elimination over Pareto sets
    pareto_bounds    which partial choices can still reach the frontier: keeps those sets small
    pareto_kernels   the compiled sums and unions of Pareto sets
    tuning           rounds, step lengths, and the size at which the exact frontier is given up

Prices of memory are searched for in two kinds of problem. Where weights and held activations alone count, a byte has
one price, and the least cost at a price is known exactly: it is concave and piecewise linear, so the best price is
where lines of known choices cross (`numerics.lower_envelope`). `composition.within_memory` takes the highest crossing,
`pareto_bounds` all corners, and a sweep of many layer ranges the same few prices for all of them. Where temporary
tensors count too, a byte has a price at every time of the `problem.timeline`, and messages bound the least cost
(`PricedMessages`): `price_search` moves all prices along the subgradient, and what its bounds leave is an ILP (`Rest`),
here and for the contest. `iopddl.anneal` moves the same prices by factors, from round to round: it looks for choices
alone, and proves no bound.

`price_search` handles limits at any time and problems of any size but need not close the gap; `pareto_frontier` is
exact but only for one sum of bytes and narrow problems. Imports `problem`, `reduction`, `elimination`, `bounds`, `ilp`
and `numerics`; `solve_limited` combines this room with the ILP.
"""
