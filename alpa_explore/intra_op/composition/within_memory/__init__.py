"""Composition within memory: the fastest choices of a layer range that fit in a device, with bounds.

Read in this order:

- `lagrangian_memory`: prices for memory, which give choices that fit and dual bounds.
- `label_setting`, `label_kernels`: choices that fit, combined from what blocks choose at different prices.
- `block_slopes`: the bytes of those choices without the choices, from how the least costs change with the prices.
- `tuning`: prices and limits.
"""
