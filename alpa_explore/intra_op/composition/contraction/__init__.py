"""Contraction: a problem becomes a table over a few kept nodes, with all other nodes minimised out, at several prices.

This is min-plus variable elimination that stops before the kept nodes, compiled for repeated use: blocks of a model
have the same sizes on many meshes, so the elimination is planned once on sizes and then run on many sets of costs.

Read in this order:

- `contract`: the public functions; `PricedProblem` in, `Contraction` (table and backtracking) out.
- `priced_problem`: a problem at several prices; sizes, memory layout, and the memory spaces that tables lie in.
- `dominance`: strategies that are never better than another one are dropped first.
- `program`: the planned elimination as arrays of integers that the kernels read.
- `steps`: the symbolic elimination, and which tables are stored or recomputed, and where.
- `kernels`: the compiled inner loops.
- `tuning`: limits and thresholds.

It must not import the rest of `composition`.
"""
