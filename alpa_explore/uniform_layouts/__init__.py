"""Uniform layouts: one degree of each kind of parallelism for the whole model, as people write them for Megatron-LM,
FSDP or torchtitan. All of them, priced; which fit; on how many devices.

In the order to read them:

    pricing/      what is asked of the cost model for one layout, and its answer; `validation` asks the same of it
    layout        a uniform layout, its name in words, and the degrees by which it is a plan
    structure     what of a model decides on its layouts, from the graph of a few of its blocks
    enumeration   every layout of a model on a cluster, of what its software has: ZeRO stages, …
    works         the work of each layout from few captures, kept in the cache
    ranking       the answer: layouts with seconds, bytes, reasons, ranked
    layouts       the public verb: all layouts of a model on a cluster
    scaling       the public verb: the best layout on each of several devices and numbers of nodes
    measured      measured runs of the same model, device and batch beside them
    of_plan       what a plan does, in the same words, and what it gains
    beside_plan   a layout that is faster than a plan, and a plan that starts from one
    report        rows and sentences of the answers
    tuning        limits of the enumeration

It stands on `baselines`, whose `layout_price` prices all of it; `validation` stands on it.
"""
