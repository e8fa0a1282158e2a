"""The figures of lessons 00 to 07: how a plan is made.

ways             lesson 00: which weights and samples a device holds in data, tensor and pipeline parallelism
step             lesson 01: the FLOPs of a training step by phase and kind
meshes           lesson 02: the groups of devices along the axes of a logical mesh, and their bandwidth
ring             lesson 03: an all-reduce on a ring, chunk by chunk
message_sizes    lesson 03: time against message size, with the parts of latency and of bandwidth
clustering       lesson 04: Eq. 6 with a slider for delta
workbench        lesson 05: a small sharding problem, a strategy for each node, and what it costs; its LP relaxation
elimination      lesson 06: eliminating the nodes of a graph one by one, and the tables that this needs
formulations     lesson 06: variables, constraints, seconds and gap of each formulation
stage_table_player  lesson 07: F(s, k, d; t_max) of Eq. 3 as the paper has it; a slider for t_max, one that fills it

What a figure shows is computed by the library, or by a public function beside it that the lesson uses as well. Imports
interactive of the room above; not each other.
"""
