"""Uniform layouts: one degree of each kind of parallelism for the whole model, as people write them for Megatron-LM,
FSDP or torchtitan. All of them, priced; which fit; on how many devices.

In the order to read them:

    stages        the blocks of each part of a pipeline, as each framework divides them
    structure     what of a model decides on its layouts, from the graph of a few of its blocks
    enumeration   every layout of a model on a cluster, of what its software has: ZeRO stages, …
    works         the work of each layout from few captures, kept in the cache
    ranking       the answer: layouts with seconds, bytes, reasons, ranked
    layouts       the public verb: all layouts of a model on a cluster
    scaling       the public verb: the best layout on each of several devices and numbers of nodes
    measured      measured runs of the same model, device and batch beside them
    beside_plan   what a plan does, in the same words; a layout that is faster, and a plan that starts from one
    report        rows and sentences of the answers
    tuning        limits of the enumeration

It stands on `baselines`, whose `layout_price` prices all of it; `validation` stands on it.

Concepts that others use: Layouts, MeasuredLayout, ModelKey, PlanAsLayout, PricedLayout, Question, Scaling,
ScalingPoint, Sizes.
"""
