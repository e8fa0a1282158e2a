"""Baselines: data parallelism, ZeRO-3, Megatron and others as plans, priced by the cost model of the automatic plan.

dims               which dims of a language model's tensors are samples, positions of the sequence, the residual stream
roles              what a mesh axis is for (data, sharded data, tensor, tensor and sequence), as a restriction of
                   strategies
kinds              the baselines by name, the degrees that each takes, and what context parallelism divides attention by
equal_stages       stages of equally many layers on equal submeshes; pipelines of a baseline that is the planner under
                   constraints
role_pipelines     the pipelines of a baseline whose axes have roles: every division that its degrees leave open
layout             a layout in words: degrees, microbatches, ZeRO stage, recomputation
block_work         the work of the parts of a model (embedding, a block of each kind, head) on a mesh with roles
layout_price       seconds and bytes of a layout, from the kernels and collectives of these parts, without a plan
stage_pricer       prices the stages of a pipeline whose mesh axes have roles
baseline           the public function: a graph or a catalogue model, a cluster and a kind to a `Plan`

Plans and layouts are evaluated from two forms of the same choice. A search needs tables of every strategy
(`intra_op.stage`), with figures of the device in them. A layout needs the kernels and collectives of one choice
(`block_work`), without such figures: hundreds of layouts and all measured runs share them, and a fit prices them anew
with every trial of the figures. The costs of a kernel, a collective, a send between stages, a pass and what is paid
once an iteration, what a device holds (`cost.stage`), the microbatches of a stage, and the simulator are the same
functions.
What `layout_price` adds up itself is the sum over the parts of a stage, and what replicas exchange;
`tests/uniform_layouts/test_agreement.py` opens layouts as plans and compares seconds (0.2 %) and bytes.

It stands above the planner, which it calls for the baselines that are plans under constraints. It imports neither
figures nor runtime, torch or Dask.

Concepts that others use: Axis, CapturedBlocks, Counted, DecoderWork, Degrees, DimLabels, Layout, LayoutPrice,
LayoutPricer, Parts, Role.
"""
