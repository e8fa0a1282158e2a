"""The work of a decoder's block in closed form: kernels and exchanges of one device, without a captured graph.

In the order to read them:

    shapes     what a block consists of: attention (grouped or latent), gated MLP, experts
    sheet      collects the kernels and exchanges of both passes
    ring       the ring of context parallelism
    attention  grouped-query and latent attention, with context parallelism by a ring
    experts    router, dispatch, grouped products, combination; shared experts
    casts      products in a lower precision: which, and the casts that they need
    block      a block, and several in sequence, as `PartWork`

Mixtures of experts have it from here; a dense model's blocks are read from its captured graph (`baselines.block_work`),
with which these forms agree (tests/cost/test_blocks.py).
"""
