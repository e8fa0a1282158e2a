"""Which strategies of one node can be dropped because another one is never worse (dead-end elimination)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints

BROADCAST_ENTRIES = 1 << 16


def undominated(costs: Floats, tables: Sequence[Floats]) -> Ints:
    """Positions of the strategies to keep, ascending; empty when none is possible.

    `costs` is [strategies], each table [strategies, strategies of a neighbour], inf where forbidden. Strategy k is
    dropped when it is impossible, or when for some k' that stays
    costs[k'] − costs[k] + Σ_tables max_j (table[k', j] − table[k, j]) ≤ 0.
    """
    possible = costs < np.inf
    for table in tables:
        possible &= table.min(axis=1) < np.inf
    kept = np.flatnonzero(possible)
    if len(kept) <= 1:
        return kept
    # worse[k', k]: how much k' can cost more than k.
    worse = costs[kept][:, None] - costs[kept][None, :]
    for table in tables:
        worse += _worst_difference(table[kept])
    np.fill_diagonal(worse, np.inf)
    if worse.min() > 0:
        return kept
    alive = np.ones(len(kept), dtype=bool)
    # One by one: of two equal strategies one stays, and what falls is dominated by one that stays (≤ is transitive).
    for k in np.flatnonzero(worse.min(axis=0) <= 0)[::-1]:
        alive[k] = not (worse[alive, k] <= 0).any()
    return kept[alive]


def _worst_difference(table: Floats) -> Floats:
    """max_j (table[k', j] − table[k, j]) for all pairs, shape [strategies, strategies].

    A column where k is forbidden says nothing (−inf); one where only k' is forbidden says +inf. Every row has a finite
    entry, so the result is never −inf.
    """
    forbidden = np.isinf(table)
    has_forbidden = bool(forbidden.any())
    # inf is taken out of the first operand so that inf − inf cannot arise; those pairs are set below.
    upper = np.where(forbidden, 0.0, table) if has_forbidden else table
    strategies, others = table.shape
    if strategies * strategies * others <= BROADCAST_ENTRIES:
        result = np.asarray((upper[:, None, :] - table[None, :, :]).max(axis=2))
    else:
        result = np.full((strategies, strategies), -np.inf)
        for high, low in zip(upper.T, table.T, strict=True):
            np.maximum(result, high[:, None] - low[None, :], out=result)
    if has_forbidden:
        only_first = forbidden.astype(np.float32) @ (~forbidden).astype(np.float32).T > 0
        result[only_first] = np.inf
    return result
