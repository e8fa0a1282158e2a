"""Sharding rules, one file an operator family: an operator in, the splits of its work out."""

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
"""Kinds whose work is never repeated on an axis that could divide it."""
