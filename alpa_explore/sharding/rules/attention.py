"""Attention as one operator (`tracing.attention`): samples, heads and queries are independent.

A shard of the queries reads all keys and values, and its gradients of keys and values are addends of a sum over the
shards. With a causal mask it needs the position of its first query (sharding.local), and the last shard has more to do
than the first. Keys are not sharded: the softmax of a query runs over all of them.
"""

from __future__ import annotations

from alpa_explore.graph import Operator, Tensor
from alpa_explore.sharding.rules.factors import Splits, broadcast_dim
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.sharding.strategy import Split

_CAUSAL = {"alpa_explore.attention.default": 4, "alpa_explore.attention_backward.default": 7}
"""Position of the argument that says whether the mask is causal."""


def attention(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(q [b, hq, sq, d], k [b, hkv, sk, d], v, mask?) -> (output, logsumexp)."""
    query, key = inputs[:2]
    mask = inputs[3:]

    def split(factor: str, size: int, dim: int, shared: int) -> Split:
        """`dim` of queries and outputs, and of the mask where it has it; `shared` of keys and values."""
        masks = (broadcast_dim(m, dim, 4, query.shape[dim]) for m in mask)
        return Split(factor, size, (dim, shared, shared, *masks), (dim, dim), triangular=_triangular(operator, factor))

    return _larger_than_one(
        split("batch", query.shape[0], 0, 0),
        split("heads", key.shape[1], 1, 1),
        split("queries", query.shape[2], 2, REPLICATE),
    )


def attention_backward(operator: Operator, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Splits:
    """(dy, q, k, v, mask?, output, logsumexp) -> (dq, dk, dv)."""
    query, key = inputs[1:3]
    mask = inputs[4:-2]

    def split(factor: str, size: int, dim: int, shared: int, summed: int) -> Split:
        """As in `attention`; `summed` is the placement of dk and dv."""
        masks = (broadcast_dim(m, dim, 4, query.shape[dim]) for m in mask)
        placed = (dim, dim, shared, shared, *masks, dim, dim)
        return Split(factor, size, placed, (dim, summed, summed), triangular=_triangular(operator, factor))

    return _larger_than_one(
        split("batch", query.shape[0], 0, 0, 0),
        split("heads", key.shape[1], 1, 1, 1),
        split("queries", query.shape[2], 2, REPLICATE, PARTIAL),
    )


def _triangular(operator: Operator, factor: str) -> bool:
    return factor == "queries" and operator.arguments[_CAUSAL[operator.kind]] is True


def _larger_than_one(*splits: Split) -> Splits:
    return tuple(s for s in splits if s.size > 1)


RULES = {
    "alpa_explore.attention.default": attention,
    "alpa_explore.attention_backward.default": attention_backward,
}
HEAVY = frozenset(RULES)
