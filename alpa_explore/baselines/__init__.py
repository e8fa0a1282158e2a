"""Baselines: data parallelism, ZeRO-3, Megatron and others as plans, priced by the cost model of the automatic plan.

dims          which dims of a language model's tensors are samples, positions of the sequence, the residual stream
roles         what a mesh axis is for (data, sharded data, tensor, tensor and sequence), as a restriction of strategies
kinds         the baselines by name, and the pipelines that each may be on a cluster
layout        a hand-made layout: degrees, microbatches, ZeRO stage, recomputation
part_times    seconds of the parts of a decoder, from their work
layout_price  seconds and bytes of a layout, from the seconds of its parts
block_work    the work of the parts of a decoder (embedding, block, head) under tensor parallelism
part_times    device and host seconds of those parts in one pass
layout        a layout by hand: degrees, recomputation, microbatch
layout_price  seconds and bytes of such a layout, without a plan
stage_pricer  prices the stages of a pipeline whose mesh axes have roles
infeasible    the errors where no pipeline of a baseline fits in memory
baseline      the public function: a graph or a catalogue model, a cluster and a kind to a `Plan`

It stands above the planner, which it calls for the baselines that are plans under constraints. It imports neither
figures nor runtime, torch or Dask.
"""
