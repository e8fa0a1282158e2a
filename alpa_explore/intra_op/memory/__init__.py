"""Prices of memory: a good choice within a limit, and a lower bound.

    price_search     `price_search`: a good choice within a MemoryLimit and a lower bound, by Lagrange multipliers
    price_kernels    its compiled descent under a penalty for memory
    tuning           rounds and step lengths

Prices of memory are searched for in two kinds of problem. Where weights and held activations alone count, a byte has
one price, and the least cost at a price is known exactly: it is concave and piecewise linear, so the best price is
where lines of known choices cross (`numerics.lower_envelope`). `composition.within_memory` takes the highest crossing,
and a sweep of many layer ranges the same few prices for all of them. Where temporary tensors count too, a byte has a
price at every time of the `problem.timeline`, and messages bound the least cost (`PricedMessages`): `price_search`
moves all prices along the subgradient, and what its bounds leave is an ILP (`Rest`), here and for the contest.
`iopddl.anneal` moves the same prices by factors, from round to round: it looks for choices alone, and proves no bound.

`price_search` handles limits at any time and problems of any size but need not close the gap. Imports `problem`,
`bounds`, `ilp` and `numerics`; `solve_limited` combines this room with the ILP.
"""
