"""The figures of lessons 08 to 17, in the order of the lessons.

schedules    lesson 08: a schedule as a Gantt chart, with the activations that it holds
memory       lesson 09: what fills a device under ZeRO stages 0 to 3; bytes of plans by part
activations  lesson 09: what a block keeps for its backward pass, by part, under each kind of recomputation
attention    lesson 10: causal attention divided among devices; a ring beside computing
experts      lesson 11: tokens from devices to experts, and the rows that each device computes
resharding   lesson 12: the cheapest collectives from any spec into any other
coverage     lesson 14: how the rules of a model's operators are known
block        lesson 15: the slices of a block's weights, and its time for every degree of tensor parallelism
hidden       lesson 16: what data parallelism computes and sends, on two rows over time
layout_cloud  lesson 17: every layout of a model by memory and time, and what the steps of the recipe leave

Those of lesson 13 are in `figures.accuracy`. Imports `interactive` of the package above; of each other, `hidden`,
`activations` and `attention` import `block`.
"""
