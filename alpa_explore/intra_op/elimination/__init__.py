"""Min-plus variable elimination (dynamic programming over tables): no ILP, no search.

    elimination_order   `elimination_order`: in which order to eliminate, from sizes alone, and what it will cost
    order_kernels       the compiled search for a better order
    eliminate           `eliminate`: an optimal choice by elimination and back substitution; Limits on its width
    forward_pass        elimination that keeps the tables of every step, for passes backwards through the order
    tuning              when an elimination is cheap, too wide, or worth a search for a better order

Time and memory grow exponentially with the induced width of the order, not with the number of nodes, and are known
before any table is made. Imports `problem`, `reduction` and `numerics`; bounds and ILPs are for problems too wide for
this room, and stand above it.
"""
