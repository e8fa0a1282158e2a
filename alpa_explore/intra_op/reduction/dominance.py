"""Dominance (dead-end elimination): drop strategies of a node that are never better than another one of the node.

Strategy k is dropped when it is impossible, or when for some k' that stays, at each price,

    costs[k'] − costs[k] + Σ_tables max_j (table[k', j] − table[k, j]) ≤ 0

Compiled by numba. The contest applies the rule at one price (`undominated`); a contraction applies it at several, with
its own search for the nodes that are due (`composition.contraction.dominance_kernels`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpa_explore.numerics.arrays import Flags, Floats, Ints
from alpa_explore.numerics.compiled import compiled


def undominated(costs: Floats, tables: Sequence[Floats]) -> Ints:
    """The strategies to keep, ascending; empty when none is possible.

    `costs` is [strategies], each table [strategies, strategies of a neighbour], inf where forbidden.
    """
    possible = costs < np.inf
    for table in tables:
        possible &= table.min(axis=1) < np.inf
    kept = np.flatnonzero(possible)
    if len(kept) <= 1:
        return kept
    excess = costs[kept][None, None, :] - costs[kept][None, :, None]
    most = np.empty(excess.shape[1:])
    for table in tables:
        largest_differences(np.ascontiguousarray(table[kept].T), most)
        excess[0] += most
    stay = np.ones(len(kept), dtype=np.bool_)
    drop_dominated(excess, np.zeros(len(kept), dtype=np.bool_), stay)
    return kept[stay]


@compiled(fastmath={"nnan", "nsz", "contract"})
def largest_differences(costs: Floats, most: Floats) -> None:
    """most[k, t] = max over j of costs[j, t] − costs[j, k], where costs[j, k] is finite; −inf where none is."""
    neighbours, strategies = costs.shape
    for k in range(strategies):
        row = most[k]
        for t in range(strategies):
            row[t] = -np.inf
        for j in range(neighbours):
            base = costs[j, k]
            if base < np.inf:
                for t in range(strategies):
                    row[t] = max(row[t], costs[j, t] - base)


@compiled()
def drop_dominated(excess: Floats, impossible: Flags, stay: Flags) -> None:
    """Clear stay[k] where another one that stays never costs more; one stays in any case. excess[p, k, t]: by how much
    t can cost more than k at price p. An impossible k is dominated by any other."""
    prices, strategies = len(excess), len(stay)
    left = strategies
    # The last first: of two that cost the same the first stays. A strategy that is dropped is dominated by one that
    # stays, for the relation is transitive.
    for k in range(strategies - 1, -1, -1):
        dominated = False
        for t in range(strategies):
            if t == k or not stay[t]:
                continue
            dominated = True
            if not impossible[k]:
                for p in range(prices):
                    if excess[p, k, t] > 0.0:
                        dominated = False
                        break
            if dominated:
                break
        if dominated and left > 1:
            stay[k] = False
            left -= 1
