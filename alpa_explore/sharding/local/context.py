"""Context parallelism: attention whose queries, keys and values are divided over the sequence along one axis.

    ring              each device computes its queries with its keys, then with those of the device before it, and so
                      on, while the keys pass from neighbour to neighbour; backwards their gradients travel along
                      (Liu et al., arXiv 2310.01889). With a causal mask the last device has the most to do
    ring-zigzag       the same for a causal mask, balanced: of 2 p chunks device i has i and 2 p − 1 − i while the
                      operator runs. The chunks change places and return, unless the whole model is in that order
                      (`sharding.zigzag`), as Megatron-LM has it
    queries-zigzag    queries alone in that order, beside all keys and values (Llama 3, arXiv 2407.21783, §3.3.2)
    ulysses           an all-to-all from positions to heads, whole sequences for some heads, and back (Jacobs et al.,
                      DeepSpeed-Ulysses, arXiv 2309.14509)

Blocks are merged exactly (`tracing.attention_blocks`); a block that the mask or a window hides is not computed.

The operator's arguments end with: mask?, (in the backward pass output, logsumexp,) and `AttentionOptions`, among them
the positions of the first sample, head and query.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore.graph import Argument, Ref, Symbol
from alpa_explore.graph.counts import AttentionOptions
from alpa_explore.sharding.local.steps import LocalCall, Shard, StepWriter, accumulator
from alpa_explore.sharding.rules.attention import QUERIES_ZIGZAG, RING, RING_ZIGZAG, ULYSSES

_HEADS, _POSITIONS = 1, 2
"""Dims of queries, keys, values and outputs."""
_BLOCK, _BLOCK_BACKWARD = "alpa_explore.attention_block.default", "alpa_explore.attention_block_backward.default"


def context_attention(shard: Shard, steps: StepWriter, axis: int) -> LocalCall:
    """(q, k, v, mask?, *options) -> (output, logsumexp)."""
    query, key, value, mask = steps.arguments[:4]
    options = AttentionOptions(*steps.arguments[4:])
    if shard.strategy.factors[axis] == ULYSSES:
        to_heads = [_to_heads(steps, t, axis) for t in (query, key, value)]
        own = options._replace(sink=_own_sink(shard, steps, options.sink, axis))
        arguments = (*to_heads, _own_mask(shard, steps, mask, axis), *own.given(_first(shard, options, axis)))
        return steps.finish(_to_positions(steps, steps.call_all(shard.operator.kind, arguments, {}, 2), axis))
    context = _Context(shard, steps, axis, options)
    query, key, value = context.queries(query), context.keys(key), context.keys(value)
    output: Argument = None
    sums: Argument = None
    for visit in range(context.visits):
        key, value = context.passed(visit, key, value)
        for block in context.blocks(visit):
            given = (query, key, value, block.mask(steps, mask), output, sums, *block.place(options))
            output, sums = steps.call_all(_BLOCK, given if isinstance(output, Ref) else (*given, options.sink), {}, 2)
    dtype = shard.outputs[0].dtype
    output = steps.cast(_made(output), accumulator(dtype), dtype)
    return steps.finish([context.queries(output, back=True), context.queries(sums, back=True)])


def context_attention_backward(shard: Shard, steps: StepWriter, axis: int) -> LocalCall:
    """(dy, q, k, v, mask?, output, logsumexp, *options) -> (dq, dk, dv)."""
    gradient, query, key, value, mask, output, sums = steps.arguments[:7]
    options = AttentionOptions(*steps.arguments[7:])
    if shard.strategy.factors[axis] == ULYSSES:
        gradient, query, key, value, output, sums = (
            _to_heads(steps, t, axis) for t in (gradient, query, key, value, output, sums)
        )
        own_mask = _own_mask(shard, steps, mask, axis)
        last = options.given(_first(shard, options, axis))
        arguments = (gradient, query, key, value, own_mask, output, sums, *last)
        return steps.finish(_to_positions(steps, steps.call_all(shard.operator.kind, arguments, {}, 3), axis))
    context = _Context(shard, steps, axis, options)
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
            given = (gradient, query, key, value, part, output, sums, dq, *of_keys, *block.place(options))
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
    """Whether the causal mask, or the window, runs through it."""
    before: int = 0
    """Then: places of its last query behind its last key."""
    masked: tuple[int, int] | None = None
    """These keys in the whole sequence, where the mask has an entry for each."""

    def place(self, options: AttentionOptions) -> tuple[Argument, ...]:
        """The arguments of the operator from `causal` on."""
        window = options.window if self.diagonal else 0
        return self.diagonal, options.scale, self.rows, self.columns, self.before, window, options.softcap

    def mask(self, steps: StepWriter, mask: Argument) -> Argument:
        """The columns of the mask for this block."""
        if not isinstance(mask, Ref) or self.masked is None:
            return mask
        return steps.call("aten.slice.Tensor", mask, -1, *self.masked)


class _Context:
    """What one device of a ring, or with queries in zig-zag order, computes at each visit of keys."""

    def __init__(self, shard: Shard, steps: StepWriter, axis: int, options: AttentionOptions) -> None:
        self.steps, self.axis, self.causal = steps, axis, options.causal is True
        self.window, self.chunks = options.window, options.chunks
        self.factor = shard.strategy.factors[axis]
        self.size, self.own = shard.mesh_shape[axis], shard.coordinate[axis]
        first = len(shard.outputs) - 2  # the gradient of the output comes first in the backward pass
        self.rows, self.columns = (shard.input_shape(first + i)[_POSITIONS] for i in (0, 1))
        masks = [t for t in shard.inputs[first + 3 : first + 4] if isinstance(steps.arguments[first + 3], Ref)]
        self.masked = bool(masks and masks[0].shape and masks[0].shape[-1] > 1)
        self.visits = 1 if self.factor == QUERIES_ZIGZAG else self.size

    def queries(self, value: Argument, *, back: bool = False) -> Ref:
        """A tensor of the queries in the order in which they are computed, or back from it."""
        return self._ordered(value, back) if self.factor != RING and not self.chunks else _made(value)

    def keys(self, value: Argument, *, back: bool = False) -> Ref:
        """The same for a tensor of the keys."""
        return self._ordered(value, back) if self.factor == RING_ZIGZAG and not self.chunks else _made(value)

    def _ordered(self, value: Argument, back: bool) -> Ref:
        order = _chunks(2 * self.size, 0, 2 * self.size)
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
            for number, chunk in enumerate(_chunks(2 * self.size, self.own, 2)):
                rows, start = (number * half, (number + 1) * half), chunk * half
                blocks += [_Block(rows, (0, start)), _Block(rows, (start, start + half), diagonal=True)]
            return blocks
        source = (self.own - visit) % self.size
        if self.chunks and (self.window or self.chunks > 2 * self.size):
            return self._between_chunks(source)
        rows, columns = (0, self.rows), (0, self.columns)
        if self.factor == RING:
            before = (self.own - source) * self.columns
            seen = before - self.columns + 1 < self.window or not self.window  # by the first query the last key
            if self.causal and (before < 0 or not seen):
                rows = (0, 0)
            masked = (source * self.columns, (source + 1) * self.columns) if self.masked else None
            edge = self.causal and (before == 0 or self.window > 0)
            return (_Block(rows, columns, edge, before if edge else 0, masked),)
        if source == self.own:
            return (_Block(rows, columns, diagonal=True),)
        # Of the keys' two chunks the earlier one is before all queries, or both are before the later queries alone.
        return (_Block(rows, (0, half)) if source < self.own else _Block((half, self.rows), columns),)

    def _between_chunks(self, source: int) -> Sequence[_Block]:
        """Each chunk of the queries with each of the keys of `source`, where both are in zig-zag order."""
        each = self.chunks // self.size
        length = self.rows // each
        blocks = []
        for i, own in enumerate(_chunks(self.chunks, self.own, each)):
            for j, other in enumerate(_chunks(self.chunks, source, each)):
                before = (own - other) * length
                seen = before >= 0 and (not self.window or before - length + 1 < self.window)
                rows = (i * length, (i + 1) * length) if seen else (0, 0)
                edge = before == 0 or self.window > 0
                columns = (j * length, (j + 1) * length)
                blocks.append(_Block(rows, columns, edge, before if edge else 0))
        return blocks


def _chunks(chunks: int, device: int, each: int) -> Sequence[int]:
    """The chunks of a sequence in zig-zag order that a device has, by their natural numbers."""
    return [k // 2 if k % 2 == 0 else chunks - 1 - k // 2 for k in range(device * each, (device + 1) * each)]


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


def _own_sink(shard: Shard, steps: StepWriter, sink: Argument, axis: int) -> Argument:
    """The sinks of the heads that the device has during an all-to-all."""
    if not isinstance(sink, Ref):
        return sink
    count = shard.input_shape(len(shard.inputs) - 1)[0] // shard.mesh_shape[axis]
    start = shard.coordinate[axis] * count
    return steps.call("aten.slice.Tensor", sink, 0, start, start + count)


def _first(shard: Shard, options: AttentionOptions, axis: int) -> tuple[int, int, int]:
    """The first sample and head, on which what dropout drops depends."""
    if options.seed is None:
        return 0, 0, 0
    spec, shape = shard.strategy.inputs[0], shard.input_shape(0)
    count = shape[_HEADS] // shard.mesh_shape[axis]
    head = shard.block(spec, _HEADS) * shape[_HEADS] + shard.coordinate[axis] * count
    return shard.block(spec, 0) * shape[0], head, 0


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
    options = AttentionOptions(*steps.arguments[causal:])
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
