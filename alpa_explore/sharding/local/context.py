"""Context parallelism: attention whose queries, keys and values are divided over the sequence along one axis.

    ring              each device computes its queries with its keys, then with those of the device before it, and so
                      on, while the keys pass from neighbour to neighbour; backwards their gradients travel along
                      (Liu et al., arXiv 2310.01889). With a causal mask the last device has the most to do
    ring-zigzag       the same for a causal mask, balanced: of 2 p chunks device i has i and 2 p − 1 − i while the
                      operator runs. Megatron-LM orders the whole model so; here the chunks change places and return
    queries-zigzag    queries alone in that order, beside all keys and values (Llama 3, arXiv 2407.21783, §3.3.2)
    ulysses           an all-to-all from positions to heads, whole sequences for some heads, and back (Jacobs et al.,
                      DeepSpeed-Ulysses, arXiv 2309.14509)

Blocks are merged exactly (`tracing.attention_blocks`); a block that the mask hides is not computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore.graph import Argument, Ref
from alpa_explore.sharding.local.shard import Shard
from alpa_explore.sharding.local.steps import LocalCall, StepWriter, accumulator
from alpa_explore.sharding.rules.attention import QUERIES_ZIGZAG, RING, ULYSSES

_HEADS, _POSITIONS = 1, 2
"""Dims of queries, keys, values and outputs."""
_BLOCK, _BLOCK_BACKWARD = "alpa_explore.attention_block.default", "alpa_explore.attention_block_backward.default"


def context_attention(shard: Shard, steps: StepWriter, axis: int) -> LocalCall:
    """(q, k, v, mask?, causal, scale, dropout, seed?) -> (output, logsumexp)."""
    query, key, value, mask, causal, scale, *options = steps.arguments
    if shard.strategy.factors[axis] == ULYSSES:
        to_heads = [_to_heads(steps, t, axis) for t in (query, key, value)]
        arguments = (*to_heads, _own_mask(shard, steps, mask, axis), causal, scale, *_placed(shard, options, axis))
        return steps.finish(_to_positions(steps, steps.call_all(shard.operator.kind, arguments, {}, 2), axis))
    context = _Context(shard, steps, axis, causal is True)
    query, key, value = context.queries(query), context.keys(key), context.keys(value)
    output: Argument = None
    sums: Argument = None
    for visit in range(context.visits):
        key, value = context.passed(visit, key, value)
        for block in context.blocks(visit):
            arguments = (query, key, value, block.mask(steps, mask), output, sums, block.diagonal, scale, *block.place)
            output, sums = steps.call_all(_BLOCK, arguments, {}, 2)
    dtype = shard.outputs[0].dtype
    output = steps.cast(_made(output), accumulator(dtype), dtype)
    return steps.finish([context.queries(output, back=True), context.queries(sums, back=True)])


def context_attention_backward(shard: Shard, steps: StepWriter, axis: int) -> LocalCall:
    """(dy, q, k, v, mask?, output, logsumexp, causal, scale, dropout, seed?) -> (dq, dk, dv)."""
    gradient, query, key, value, mask, output, sums, causal, scale, *options = steps.arguments
    if shard.strategy.factors[axis] == ULYSSES:
        gradient, query, key, value, output, sums = (
            _to_heads(steps, t, axis) for t in (gradient, query, key, value, output, sums)
        )
        own_mask = _own_mask(shard, steps, mask, axis)
        arguments = (gradient, query, key, value, own_mask, output, sums, causal, scale, *_placed(shard, options, axis))
        return steps.finish(_to_positions(steps, steps.call_all(shard.operator.kind, arguments, {}, 3), axis))
    context = _Context(shard, steps, axis, causal is True)
    gradient, query, output, sums = (context.queries(t) for t in (gradient, query, output, sums))
    key, value = context.keys(key), context.keys(value)
    dq: Argument = None
    of_keys: tuple[Argument, Argument] = (None, None)
    own: tuple[Argument, Argument] = (None, None)
    for visit in range(context.visits):
        key, value = context.passed(visit, key, value)
        if visit == 1:  # gradients of the device's own keys stay
            own, of_keys = of_keys, (None, None)
        elif visit > 1:
            of_keys = context.passed(visit, *of_keys)
        for block in context.blocks(visit):
            part = block.mask(steps, mask)
            given = (gradient, query, key, value, part, output, sums, dq, *of_keys, block.diagonal, scale, *block.place)
            dq, *pair = steps.call_all(_BLOCK_BACKWARD, given, {}, 3)
            of_keys = pair[0], pair[1]
    if context.visits > 1:
        home = context.passed(context.visits, *of_keys)
        of_keys = tuple(steps.call("aten.add.Tensor", *pair) for pair in zip(own, home, strict=True))  # type: ignore[assignment]  # two of two
    dtype = shard.outputs[0].dtype
    dq = steps.cast(_made(dq), accumulator(dtype), dtype)
    return steps.finish([context.queries(dq, back=True), *(context.keys(t, back=True) for t in of_keys)])


@dataclass(frozen=True, slots=True)
class _Block:
    """Some queries of the device with some of the keys that it has at the moment, each (start, stop)."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    diagonal: bool = False
    """Whether the causal mask runs through it; its last query sees all of its keys."""
    masked: tuple[int, int] | None = None
    """These keys in the whole sequence, where the mask has an entry for each."""

    @property
    def place(self) -> tuple[Argument, ...]:
        """The last two arguments of the operator."""
        return self.rows, self.columns

    def mask(self, steps: StepWriter, mask: Argument) -> Argument:
        """The columns of the mask for this block."""
        if not isinstance(mask, Ref) or self.masked is None:
            return mask
        return steps.call("aten.slice.Tensor", mask, -1, *self.masked)


class _Context:
    """What one device of a ring, or with queries in zig-zag order, computes at each visit of keys."""

    def __init__(self, shard: Shard, steps: StepWriter, axis: int, causal: bool) -> None:
        self.steps, self.axis, self.causal = steps, axis, causal
        self.factor = shard.strategy.factors[axis]
        self.size, self.own = shard.mesh_shape[axis], shard.coordinate[axis]
        first = len(shard.outputs) - 2  # the gradient of the output comes first in the backward pass
        self.rows, self.columns = (shard.input_shape(first + i)[_POSITIONS] for i in (0, 1))
        masks = [t for t in shard.inputs[first + 3 : first + 4] if isinstance(steps.arguments[first + 3], Ref)]
        self.masked = bool(masks and masks[0].shape and masks[0].shape[-1] > 1)
        self.visits = 1 if self.factor == QUERIES_ZIGZAG else self.size

    def queries(self, value: Argument, *, back: bool = False) -> Ref:
        """A tensor of the queries in the order in which they are computed, or back from it."""
        return self._ordered(value, back) if self.factor != RING else _made(value)

    def keys(self, value: Argument, *, back: bool = False) -> Ref:
        """The same for a tensor of the keys."""
        return self._ordered(value, back) if self.factor not in (RING, QUERIES_ZIGZAG) else _made(value)

    def _ordered(self, value: Argument, back: bool) -> Ref:
        order = [chunk for i in range(self.size) for chunk in (i, 2 * self.size - 1 - i)]
        if back:
            order = [order.index(chunk) for chunk in range(len(order))]
        return self.steps.permute(_made(value), self.axis, _POSITIONS, tuple(order))

    def passed(self, visit: int, first: Argument, second: Argument) -> tuple[Argument, Argument]:
        """Two tensors of the keys at a visit: those that the device before this one had at the visit before."""
        if not visit:
            return first, second
        made = [self.steps.from_previous(_made(t), self.axis, self.size) for t in (first, second)]
        return made[0], made[1]

    def blocks(self, visit: int) -> Sequence[_Block]:
        """What is computed at a visit; equally many blocks on every device."""
        half = self.rows // 2
        if self.factor == QUERIES_ZIGZAG:
            blocks = []
            for number, chunk in enumerate((self.own, 2 * self.size - 1 - self.own)):
                rows, start = (number * half, (number + 1) * half), chunk * half
                blocks += [_Block(rows, (0, start)), _Block(rows, (start, start + half), diagonal=True)]
            return blocks
        source = (self.own - visit) % self.size
        rows, columns = (0, self.rows), (0, self.columns)
        if self.factor == RING:
            if self.causal and source > self.own:
                rows = (0, 0)
            masked = (source * self.columns, (source + 1) * self.columns) if self.masked else None
            return (_Block(rows, columns, self.causal and source == self.own, masked),)
        if source == self.own:
            return (_Block(rows, columns, diagonal=True),)
        # Of the keys' two chunks the earlier one is before all queries, or both are before the later queries alone.
        return (_Block(rows, (0, half)) if source < self.own else _Block((half, self.rows), columns),)


def _made(value: Argument) -> Ref:
    assert isinstance(value, Ref), "the value of a step"
    return value


def _to_heads(steps: StepWriter, value: Argument, axis: int) -> Ref:
    return steps.all_to_all(_made(value), axis, cut=_HEADS, joined=_POSITIONS)


def _to_positions(steps: StepWriter, values: Sequence[Ref], axis: int) -> list[Ref]:
    return [steps.all_to_all(value, axis, cut=_POSITIONS, joined=_HEADS) for value in values]


def _own_mask(shard: Shard, steps: StepWriter, mask: Argument, axis: int) -> Argument:
    """The mask for the heads that the device has during an all-to-all."""
    if not isinstance(mask, Ref):
        return mask
    place = len(shard.outputs) + 1
    shape = shard.input_shape(place)
    if len(shape) < 3 or shard.inputs[place].shape[-3] == 1:
        return mask
    count = shape[-3] // shard.mesh_shape[axis]
    start = shard.coordinate[axis] * count
    return steps.call("aten.slice.Tensor", mask, -3, start, start + count)


def _placed(shard: Shard, options: Sequence[Argument], axis: int) -> Sequence[Argument]:
    """Dropout, its seed and, where there is one, the first sample and head, on which what it drops depends."""
    if len(options) < 2 or options[1] is None:
        return options[:2]
    spec, shape = shard.strategy.inputs[0], shard.input_shape(0)
    count = shape[_HEADS] // shard.mesh_shape[axis]
    head = shard.block(spec, _HEADS) * shape[_HEADS] + shard.coordinate[axis] * count
    return (*options[:2], (shard.block(spec, 0) * shape[0], head, 0))
