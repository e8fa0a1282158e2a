"""Sharding rules, one file for each operator family: an operator and its tensors in, the splits of its work out.

`factors` makes the rules that differ in data only (`einsum("mk,kn->mn")`, `each_other_dim(1)`); read it first, then
`products`, then any family: attention, elementwise, experts, indexing, recurrence, reductions, views. A family lists
its rules by operator kind in `RULES`; kinds whose work must not be replicated are in `HEAVY`.

To add a rule: enter the operator kind in the `RULES` of its family (or of a new file), with a rule of `factors` or a
function of operator and tensors, and in `HEAVY` if its work must not be replicated; if it runs with changed
arguments on a shard, say how in `sharding.local`; give it a case in tests/sharding, where every rule is proven by
running the operator whole and sharded. Strategies and costs follow; cached solves need no care, because their keys hold
a digest of these sources. Without a rule an operator is discovered; a rule is better where a shard needs other
arguments than the whole, a sum halfway through, or an addend that counts once.

A rule states a mathematical fact about an operator; how the operator then runs on a shard is written in
`sharding.local`. Families do not import each other; none imports `sharding.local`, `sharding.discovery` or torch.
"""

from collections.abc import Mapping

from alpa_explore.sharding.rules import (
    attention,
    elementwise,
    experts,
    indexing,
    products,
    recurrence,
    reductions,
    views,
)
from alpa_explore.sharding.rules.factors import Rule

RULES: Mapping[str, Rule] = {
    **attention.RULES,
    **elementwise.RULES,
    **experts.RULES,
    **indexing.RULES,
    **products.RULES,
    **recurrence.RULES,
    **reductions.RULES,
    **views.RULES,
}
"""Operator kind -> its rule."""

HEAVY: frozenset[str] = products.HEAVY | attention.HEAVY | experts.HEAVY | recurrence.HEAVY
"""Kinds whose work is never replicated along a mesh axis that could divide it."""
