"""Sharding rules, one file for each operator family: an operator and its tensors in, the splits of its work out.

`factors` holds the helpers with which most rules are one line (`from_factors("mk,kn->mn", …)`); read it first, then
`matrix`, then any family: attention, convolution, creation, elementwise, experts, indexing, losses, normalization,
recurrence, reductions, views. A family lists its rules by operator kind in `RULES`; kinds whose work must not be
replicated are in `HEAVY`.

To add a rule: write a function of operator and tensors in the file of its family (or in a new file); enter it in the
`RULES` of that file under the operator kind, and in `HEAVY` if its work must not be replicated; if it runs with changed
arguments on a shard, say how in `sharding.local`; give it a case in tests/sharding, where every rule is proven by
running the operator whole and sharded. Strategies and costs follow; cached solves need no care, because their keys hold
a digest of these sources. Without a rule an operator is discovered; a rule is better where a shard needs other
arguments than the whole, a sum halfway through, or an addend that counts once.

A rule states a mathematical fact about an operator; how the operator then runs on a shard is written in
`sharding.local`. Families do not import each other; none imports `sharding.local`, `sharding.discovery` or torch.
"""

from collections.abc import Callable, Mapping

from alpa_explore.graph import Operator, Tensor
from alpa_explore.sharding.rules import (
    attention,
    convolution,
    creation,
    elementwise,
    experts,
    indexing,
    losses,
    matrix,
    normalization,
    recurrence,
    reductions,
    views,
)
from alpa_explore.sharding.strategy import Split

Rule = Callable[[Operator, tuple[Tensor, ...], tuple[Tensor, ...]], tuple[Split, ...]]

RULES: Mapping[str, Rule] = {
    **attention.RULES,
    **convolution.RULES,
    **creation.RULES,
    **elementwise.RULES,
    **experts.RULES,
    **indexing.RULES,
    **losses.RULES,
    **matrix.RULES,
    **normalization.RULES,
    **recurrence.RULES,
    **reductions.RULES,
    **views.RULES,
}
"""Operator kind -> its rule."""

HEAVY: frozenset[str] = matrix.HEAVY | convolution.HEAVY | attention.HEAVY | experts.HEAVY | recurrence.HEAVY
"""Kinds whose work is never replicated along a mesh axis that could divide it."""
