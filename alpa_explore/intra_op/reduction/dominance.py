"""Dominance (dead-end elimination): drop strategies of a node that are never better than another one of the node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpa_explore.intra_op.reduction import tuning
from alpa_explore.numerics.arrays import Floats, Ints


def undominated(costs: Floats, tables: Sequence[Floats]) -> Ints:
    """The strategies to keep, ascending; empty when none is possible.

    `costs` is [strategies], each table [strategies, strategies of a neighbour], inf where forbidden. Strategy k is
    dropped when it is impossible, or when for some remaining k'
    costs[k'] − costs[k] + Σ_tables max_j (table[k', j] − table[k, j]) ≤ 0.
    """
    possible = costs < np.inf
    for table in tables:
        possible &= table.min(axis=1) < np.inf
    kept = np.flatnonzero(possible)
    if len(kept) <= 1:
        return kept
    # excess[k', k]: by how much k' can cost more than k.
    excess = costs[kept][:, None] - costs[kept][None, :]
    for table in tables:
        excess += _largest_difference(table[kept])
    np.fill_diagonal(excess, np.inf)
    if excess.min() > 0:
        return kept
    alive = np.ones(len(kept), dtype=bool)
    # One at a time: of two equal strategies one stays, and a dropped strategy is dominated by one that stays, because ≤
    # is transitive.
    for k in np.flatnonzero(excess.min(axis=0) <= 0)[::-1]:
        alive[k] = not (excess[alive, k] <= 0).any()
    return kept[alive]


def _largest_difference(table: Floats) -> Floats:
    """max_j (table[k', j] − table[k, j]) for all pairs, shape [strategies, strategies].

    A column in which k is forbidden does not count (−inf); one in which only k' is forbidden gives +inf. Every row has
    a finite entry, so the result is never −inf.
    """
    forbidden = np.isinf(table)
    has_forbidden = bool(forbidden.any())
    # inf is taken out of the first operand so that inf − inf cannot arise; those pairs are set below.
    upper = np.where(forbidden, 0.0, table) if has_forbidden else table
    strategies, others = table.shape
    if strategies * strategies * others <= tuning.DOMINANCE_BROADCAST_ENTRIES:
        result = np.asarray((upper[:, None, :] - table[None, :, :]).max(axis=2))
    else:
        result = np.full((strategies, strategies), -np.inf)
        for high, low in zip(upper.T, table.T, strict=True):
            np.maximum(result, high[:, None] - low[None, :], out=result)
    if has_forbidden:
        only_first = forbidden.astype(np.float32) @ (~forbidden).astype(np.float32).T > 0
        result[only_first] = np.inf
    return result
