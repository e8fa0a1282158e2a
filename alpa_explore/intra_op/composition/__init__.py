"""Composition: all layer ranges of a model on one logical mesh, from one contraction of every distinct block.

A model in layers is a chain of blocks, and the least cost of a layer range is a min-plus product of the tables of its
blocks. That takes the place of one solve for each of the L · (L + 1) / 2 ranges. Equal blocks are contracted once.

Read in this order:

- `chain`, `chain_blocks`: a layered graph as a chain of blocks, and where it is cut into blocks.
- `cut_blocks`, `block_subproblem`: a block cut out at its separators, as a problem of its own.
- `contraction/`: the inside of a block minimised out, at several prices at once.
- `block_tables`: the least costs of a block over the states of its separators, and the choices behind them.
- `min_plus_products`: products of tables, and backtracking to the best states; mixtures of two prices.
- `compose`: `Composer`, which puts these together; its docstring has the formula.
- `within_memory`: choices that fit in a device, and bounds on the fastest of them, by one price of memory.
- `tuning`: limits and thresholds.

Ranges that are not chains, and blocks that are too wide to contract, are left to `intra_op.solve`. The room imports
`stage`, `elimination`, `reduction` and what is below `intra_op`; it must not import `solve`, `ilp` or `formulations`.
"""
