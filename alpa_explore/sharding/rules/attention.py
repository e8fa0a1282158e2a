"""Attention as one operator (`tracing.attention`): samples, heads and queries are independent.

Where several query heads share a head of keys and values, the query heads can also be divided further than those; each
device then takes what its heads need out of all keys and values (sharding.local). A shard of the queries reads all keys
and values too. In both cases the gradients of keys and values are addends of a sum over the shards. With a causal mask
a shard of the queries needs the position of its first one, and the last shard has more to do than the first. A sink of
each query head is divided with the heads; its gradient is an operator of its own.

The softmax of a query runs over all keys. Where keys are divided too (context parallelism), devices exchange keys, or
heads for positions, while the operator runs (`sharding.local.context`). The software says from how many positions on.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from alpa_explore.graph import Operator, Ref, Tensor
from alpa_explore.graph.counts import attention_options
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.rules.factors import Splits, Tensors, broadcast_dim, each_other_dim, einsum, kinds
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.strategy import Exchange, Split

QUERIES, QUERIES_ZIGZAG, RING, RING_ZIGZAG, ULYSSES = "queries", "queries-zigzag", "ring", "ring-zigzag", "ulysses"
CONTEXT = frozenset((RING, RING_ZIGZAG, QUERIES_ZIGZAG, ULYSSES))
"""The factors under which devices exchange something inside the operator."""


def attention(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(q [b, hq, sq, d], k [b, hkv, sk, d], v, mask?, seed?, sink?) -> (output, logsumexp)."""
    return _splits(operator, inputs, outputs, backward=False)


def attention_backward(operator: Operator, inputs: Tensors, outputs: Tensors) -> Splits:
    """(dy, q, k, v, mask?, output, logsumexp, seed?) -> (dq, dk, dv)."""
    return _splits(operator, inputs, outputs, backward=True)


def _splits(operator: Operator, inputs: Tensors, outputs: Tensors, *, backward: bool) -> Splits:
    query, key = inputs[backward : backward + 2]
    mask = inputs[backward + 3 : backward + 4] if isinstance(operator.arguments[3 + backward], Ref) else ()
    options = attention_options(operator.kind, operator.arguments)
    seeds = (REPLICATE,) if isinstance(options.seed, Ref) else ()
    sinks = isinstance(options.sink, Ref)
    is_causal = options.causal is True

    def split(factor: str, size: int, dim: int, shared: int, summed: int, *, ramp: float = 0.0) -> Split:
        """`dim` of queries and outputs, and of the mask where it has it; `shared` of keys and values, and `summed` of
        their gradients."""
        whole = factor == ULYSSES
        masks = tuple(REPLICATE if whole else broadcast_dim(m, dim, 4, query.shape[dim]) for m in mask)
        read, made = (dim, shared, shared, *masks), (dim, summed, summed)
        if backward:
            return Split(factor, size, (dim, *read, dim, dim, *seeds), made, ramp=ramp)
        of_sink = (0 if dim == 1 else REPLICATE,) * sinks
        return Split(factor, size, (*read, *seeds, *of_sink), (dim, dim), ramp=ramp)

    heads, shared_heads, rows, columns = query.shape[1], key.shape[1], query.shape[2], key.shape[2]
    chunks, window = options.chunks, options.window
    ramp = min(window / rows, 1.0) if is_causal and window and rows == columns else float(is_causal)
    parts, ring = rows, RING
    if chunks:  # parts of the sequence in zig-zag order have the same to do, and no tensor changes its order
        parts, ring, ramp = chunks // 2, RING_ZIGZAG, 0.0
    splits = [
        split("batch", query.shape[0], 0, 0, 0),
        split("heads", shared_heads, 1, 1, 1),
        split("query-heads", heads if heads > shared_heads else 1, 1, REPLICATE, PARTIAL),
        split(QUERIES, parts, 2, REPLICATE, PARTIAL, ramp=ramp),
    ]
    size = math.gcd(rows, columns)
    if not seeds and (rows == columns or not is_causal):  # what dropout drops depends on the positions of keys
        splits.append(split(ring, math.gcd(size, parts), 2, 2, 2, ramp=ramp))
    # With a window zig-zag order balances nothing: all rows but the first have as much to do.
    if not seeds and not mask and not window and not chunks and is_causal and rows == columns and rows % 2 == 0:
        splits.append(split(RING_ZIGZAG, rows // 2, 2, 2, 2))
        splits.append(split(QUERIES_ZIGZAG, rows // 2, 2, REPLICATE, PARTIAL))
    splits.append(split(ULYSSES, math.gcd(size, shared_heads), 2, 2, 2))
    return tuple(
        _exchanging(s, inputs, outputs, ordered=chunks > 0) if s.factor in CONTEXT else s for s in splits if s.size > 1
    )


def _exchanging(split: Split, inputs: Sequence[Tensor], outputs: Sequence[Tensor], *, ordered: bool) -> Split:
    """A split with what its devices exchange. In a ring, gradients of keys and values travel with them. Tensors that
    change their places (zig-zag, unless they are `ordered` so) or their sharded dim (Ulysses) do so once."""
    backward = len(outputs) == 3
    of_keys = sum(t.bytes for t in inputs[1 + backward : 3 + backward])
    passing = Exchange(StepKind.RING, of_keys * (1 + backward), beside=True)
    ring = (passing,) if split.factor in (RING, RING_ZIGZAG) else ()
    kind = StepKind.ALL_TO_ALL if split.factor == ULYSSES else StepKind.PERMUTE
    placed = zip((*inputs, *outputs), (*split.inputs, *split.outputs), strict=True)
    moved = [t.bytes for t, dim in placed if dim == 2 and len(t.shape) > 2]
    if split.factor == RING or (ordered and split.factor == RING_ZIGZAG):
        moved = []
    exchanges = (*ring, *(Exchange(kind, sent) for sent in moved))
    inside = "heads" if split.factor == ULYSSES else ""
    return replace(split, exchanges=exchanges, only_with=("batch", "heads"), inside=inside)


RULES = {
    **kinds("attention", attention, "alpa_explore"),
    **kinds("attention_backward", attention_backward, "alpa_explore"),
    **kinds("sink_gradient", einsum("bhsd,bhsd,bhs,h->h"), "alpa_explore"),
    **kinds("zigzag", each_other_dim(1, linear=False), "alpa_explore"),
}
HEAVY = frozenset({"alpa_explore.attention.default", "alpa_explore.attention_backward.default"})
