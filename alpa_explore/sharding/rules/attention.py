"""Attention as one operator (`tracing.attention`): samples, heads and queries are independent.

Where several query heads share a head of keys and values, the query heads can also be divided further than those; each
device then takes what its heads need out of all keys and values (sharding.local). A shard of the queries reads all keys
and values too. In both cases the gradients of keys and values are addends of a sum over the shards. With a causal mask
a shard of the queries needs the position of its first one, and the last shard has more to do than the first. Keys are
not sharded: the softmax of a query runs over all of them.
"""

from __future__ import annotations

from alpa_explore.graph import Operator, Ref, Tensor
from alpa_explore.sharding.rules.factors import Splits, broadcast_dim
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.strategy import Split

_FORWARD_CAUSAL, _BACKWARD_CAUSAL = 4, 7
"""Position of the argument that says whether the mask is causal; three places on stands the seed of dropout."""


def attention(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(q [b, hq, sq, d], k [b, hkv, sk, d], v, mask?, seed?) -> (output, logsumexp)."""
    return _splits(operator, inputs, _FORWARD_CAUSAL)


def attention_backward(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(dy, q, k, v, mask?, output, logsumexp, seed?) -> (dq, dk, dv)."""
    return _splits(operator, inputs, _BACKWARD_CAUSAL)


def _splits(operator: Operator, inputs: tuple[Tensor, ...], causal: int) -> Splits:
    backward = causal == _BACKWARD_CAUSAL
    query, key = inputs[backward : backward + 2]
    mask = inputs[backward + 3 : backward + 4] if isinstance(operator.arguments[causal - 1 - 2 * backward], Ref) else ()
    seed = operator.arguments[causal + 3 : causal + 4]
    seeds = (REPLICATE,) if seed and isinstance(seed[0], Ref) else ()

    def split(factor: str, size: int, dim: int, shared: int, summed: int, *, triangular: bool = False) -> Split:
        """`dim` of queries and outputs, and of the mask where it has it; `shared` of keys and values, and `summed` of
        their gradients."""
        masks = tuple(broadcast_dim(m, dim, 4, query.shape[dim]) for m in mask)
        read, made = (dim, shared, shared, *masks), (dim, summed, summed)
        if backward:
            return Split(factor, size, (dim, *read, dim, dim, *seeds), made, triangular=triangular)
        return Split(factor, size, (*read, *seeds), (dim, dim), triangular=triangular)

    heads, shared_heads = query.shape[1], key.shape[1]
    splits = (
        split("batch", query.shape[0], 0, 0, 0),
        split("heads", shared_heads, 1, 1, 1),
        split("query-heads", heads if heads > shared_heads else 1, 1, REPLICATE, PARTIAL),
        split("queries", query.shape[2], 2, REPLICATE, PARTIAL, triangular=operator.arguments[causal] is True),
    )
    return tuple(s for s in splits if s.size > 1)


RULES = {
    "alpa_explore.attention.default": attention,
    "alpa_explore.attention_backward.default": attention_backward,
}
HEAVY = frozenset(RULES)
