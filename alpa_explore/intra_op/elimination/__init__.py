"""Orders of min-plus variable elimination (dynamic programming over tables): no ILP, no search over choices.

    elimination_order   `elimination_order`: in which order to eliminate, from sizes alone, at what cost; Limits
    order_kernels       the compiled search for a better order
    tuning              when an elimination is cheap, too wide, or worth a search for a better order

Time and memory grow exponentially with the induced width of the order, not with the number of nodes, and are known
before any table is made. What eliminates is `composition.contraction`, and `reduction` where a node is narrow. Imports
`problem` and `numerics`; bounds and ILPs are for problems too wide for it, and stand above it.
"""
