"""Prices of memory: a good choice within a limit, and a lower bound.

    price_search   `price_search`: a good choice within a MemoryLimit and a lower bound, by Lagrange multipliers; its
                   compiled descent under a penalty for memory
    tuning         rounds and step lengths

Prices of memory are searched for in two kinds of problem. `composition.within_memory` has one price, of weights and
held activations, and knows the least cost at a price exactly: the best price is where lines of known choices cross.
Here temporary tensors count too: a byte has a price at every time of the `problem.timeline`, messages bound the least
cost (`PricedMessages`), all prices move along the subgradient, and what the bounds leave is an ILP (`Rest`), here and
for the contest. `iopddl.anneal` moves the same prices by factors: it looks for choices alone, and proves no bound.

`price_search` handles limits at any time and problems of any size but need not close the gap. Imports `problem`,
`bounds`, `ilp` and `numerics`; `solve_limited` combines this room with the ILP.
"""
