"""Sharding rules, one file an operator family: an operator in, the splits of its work out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from alpa_explore.graph import Operator, Tensor
from alpa_explore.graph.counts import is_matrix_product
from alpa_explore.graph.signature import operator_signature
from alpa_explore.sharding.discoveries import known
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


@dataclass(frozen=True, slots=True)
class Coverage:
    """How an operator is covered."""

    splits: tuple[Split, ...]
    heavy: bool
    how: str
    """'rule'; 'discovered' when no rule knows the kind, but running it showed how it divides; else 'replicated'."""
    reason: str = ""
    """Why it is replicated."""


def splits_for(operator: Operator, tensors: Sequence[Tensor]) -> Coverage:
    """The splits of `operator`; `tensors` are those of its graph. The only door: a rule first, then discovery."""
    inputs = tuple(tensors[t] for t in operator.inputs)
    outputs = tuple(tensors[t] for t in operator.outputs)
    rule = RULES.get(operator.kind)
    if rule is not None:
        return Coverage(rule(operator, inputs, outputs), operator.kind in HEAVY, "rule")
    found = known(operator_signature(operator, tensors))
    if found is None:
        # Imported here because it takes torch, which a graph with rules for all its operators does not need.
        from alpa_explore.sharding.discover import discover

        found = discover(operator, inputs, outputs)
    if not found.splits:
        return Coverage((), False, "replicated", found.reason)
    return Coverage(found.splits, is_matrix_product(operator.kind), "discovered")
