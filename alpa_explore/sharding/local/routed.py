"""Routed experts on a shard: the first of its experts among all, and who adds the bias of the down projection."""

from __future__ import annotations

from alpa_explore.graph.counts import ROUTED, packet
from alpa_explore.sharding.local.shard import Shard
from alpa_explore.sharding.local.steps import LocalCall, StepWriter


def experts(shard: Shard, steps: StepWriter) -> LocalCall:
    """The operators of `tracing.experts` end with (first expert, number of all, whether the last bias is added)."""
    up = ROUTED[packet(shard.operator.kind)].matrices
    spec = shard.strategy.inputs[up]
    first = shard.block(spec, 0) * shard.input_shape(up)[0]
    # Where the inner width is divided, one of the devices adds it.
    last_bias = not any(c and placement > 0 for c, placement in zip(shard.coordinate, spec, strict=True))
    arguments = (*steps.arguments[:-3], first, steps.arguments[-2], last_bias)
    return steps.finish(steps.call_all(shard.operator.kind, arguments, {}, len(shard.outputs)))
