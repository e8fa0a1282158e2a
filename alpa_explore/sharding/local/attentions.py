"""Attention on a shard: its place in the whole, and the heads of keys and values that its query heads share.

The operator's arguments end with: mask?, (in the backward pass output, logsumexp,) and `Options`, among them the
positions of the first sample, head and query.
"""

from alpa_explore.graph import Argument, Ref, Symbol
from alpa_explore.sharding.local.context import context_attention, context_attention_backward
from alpa_explore.sharding.local.shard import Shard
from alpa_explore.sharding.local.steps import LocalCall, StepWriter
from alpa_explore.sharding.rules.attention import Options


def attention(shard: Shard, steps: StepWriter) -> LocalCall:
    """(q, k, v, mask?, *options) -> (output, logsumexp)."""
    if axes := shard.synced_axes():
        return context_attention(shard, steps, axes[0])
    query, key, value, *others = _placed(shard, steps, 4)
    heads = _own_heads(shard, steps, 1)
    if heads is not None:
        key, value = (steps.call("aten.index_select.default", t, 1, heads) for t in (key, value))
    return steps.finish(steps.call_all(shard.operator.kind, (query, key, value, *others), {}, 2))


def attention_backward(shard: Shard, steps: StepWriter) -> LocalCall:
    """(dy, q, k, v, mask?, output, logsumexp, *options) -> (dq, dk, dv)."""
    if axes := shard.synced_axes():
        return context_attention_backward(shard, steps, axes[0])
    gradient, query, key, value, *others = _placed(shard, steps, 7)
    heads = _own_heads(shard, steps, 2)
    if heads is not None:
        key, value = (steps.call("aten.index_select.default", t, 1, heads) for t in (key, value))
    made = steps.call_all(shard.operator.kind, (gradient, query, key, value, *others), {}, 3)
    if heads is not None:
        for place in (1, 2):
            zeros = steps.call("aten.new_zeros.default", made[place], shard.output_shape(place))
            made[place] = steps.call("aten.index_add.default", zeros, 1, heads, made[place])
    return steps.finish(made)


def _placed(shard: Shard, steps: StepWriter, causal: int) -> tuple[Argument, ...]:
    """The arguments with the position of the shard where the operator depends on it; `causal` is the place of that
    argument. The first input has samples, query heads and queries as its first dims."""
    spec, shape = shard.strategy.inputs[0], shard.input_shape(0)
    first = tuple(shard.block(spec, dim) * shape[dim] for dim in range(3))
    options = Options(*steps.arguments[causal:])
    if options.seed is None:
        first = (0, 0, first[2] if options.causal is True else 0)
    return (*steps.arguments[:causal], *options.given(first)) if any(first) else steps.arguments


def _own_heads(shard: Shard, steps: StepWriter, key: int) -> Ref | None:
    """The heads of keys and values (input `key`) that the shard's query heads share, as indices; None where it holds
    just these. One for each query head where they do not fill whole groups."""
    spec, local, shared = shard.strategy.inputs[0], shard.input_shape(0)[1], shard.input_shape(key)[1]
    group = shard.inputs[0].shape[1] // shard.inputs[key].shape[1]
    if local == group * shared:
        return None
    first = shard.block(spec, 1) * local
    every = tuple((first + head) // group for head in range(local))
    if local % group == 0 or group % local == 0:
        every = tuple(dict.fromkeys(every))
    return steps.call("constant.literal", every, (len(every),), dtype=Symbol("dtype", "int64"))
