"""Sharding rules, one file for each operator family: an operator and its tensors in, the splits of its work out.

`factors` holds the helpers with which most rules are one line (`from_factors("mk,kn->mn", …)`); read it first, then
`matrix`, then any family: convolution, creation, elementwise, indexing, losses, normalization, reductions, views. A
family lists its rules by operator kind in `RULES`; kinds whose work must not be replicated are in `HEAVY`.

A rule states a mathematical fact about an operator. How the operator then runs on a shard (which arguments change,
where a sum is needed) is written in `sharding.local`. tests/sharding proves each rule: it runs the operator whole and
sharded, recombines and compares. Families do not import each other; none imports `sharding.local`, `sharding.discovery`
or torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from alpa_explore.graph import Operator, Tensor
from alpa_explore.sharding.rules import (
    convolution,
    creation,
    elementwise,
    indexing,
    losses,
    matrix,
    normalization,
    reductions,
    views,
)
from alpa_explore.sharding.strategy import Split

Rule = Callable[[Operator, tuple[Tensor, ...], tuple[Tensor, ...]], tuple[Split, ...]]

RULES: Mapping[str, Rule] = {
    **convolution.RULES,
    **creation.RULES,
    **elementwise.RULES,
    **indexing.RULES,
    **losses.RULES,
    **matrix.RULES,
    **normalization.RULES,
    **reductions.RULES,
    **views.RULES,
}
"""Operator kind -> its rule."""

HEAVY: frozenset[str] = matrix.HEAVY | convolution.HEAVY
"""Kinds whose work is never replicated along a mesh axis that could divide it."""
