"""Dominance (dead-end elimination) on a problem at several prices, compiled by numba: the rule of
`intra_op.reduction.dominance`, which holds here if it holds at every price."""

from __future__ import annotations

import numpy as np

from alpa_explore.intra_op.reduction.dominance import drop_dominated, largest_differences
from alpa_explore.numerics.arrays import Flags, Floats, Ints
from alpa_explore.numerics.compiled import compiled


@compiled(fastmath={"nnan", "nsz", "contract"})
def keep_undominated(
    sizes: Ints,
    reducible: Flags,
    node_offsets: Ints,
    node_priced: Flags,
    edge_ends: Ints,
    edge_offsets: Ints,
    edge_priced: Flags,
    incident: Ints,
    incident_begins: Ints,
    common: Floats,
    priced: Floats,
    most_steps: float,
    rounds: int,
    alive: Flags,
) -> None:
    """Set alive[v, k] to false for strategies of reducible nodes that another one, which stays, never costs more than.

    `common` [entries] are the costs that no price changes, `priced` [prices, entries] the others; those of node v begin
    at node_offsets[v] (−1: no costs), those of edge e, [strategies of its first end, of its second], at
    edge_offsets[e]. `incident` lists the edges of every node. Nodes that would take more than `most_steps` are left as
    they are.
    """
    prices, nodes = len(priced), len(sizes)
    due = reducible.copy()
    for _ in range(rounds):
        changed = False
        for v in range(nodes):
            if not due[v]:
                continue
            due[v] = False
            mine = np.flatnonzero(alive[v, : sizes[v]])
            strategies = len(mine)
            edges = incident[incident_begins[v] : incident_begins[v + 1]]
            steps = 0.0
            for e in edges:
                u = edge_ends[e, 0] + edge_ends[e, 1] - v
                steps += strategies * strategies * sizes[u] * (prices if edge_priced[e] else 1)
            if strategies < 2 or steps > most_steps:
                continue
            # excess[p, k, t]: by how much t can cost more than k. An impossible k is dominated by any other strategy.
            excess = np.zeros((prices, strategies, strategies))
            impossible = np.zeros(strategies, dtype=np.bool_)
            if node_offsets[v] >= 0:
                for p in range(prices):
                    at_price = priced[p] if node_priced[v] else common
                    for k in range(strategies):
                        base = at_price[node_offsets[v] + mine[k]]
                        if base == np.inf:
                            impossible[k] = True
                            continue
                        for t in range(strategies):
                            excess[p, k, t] += at_price[node_offsets[v] + mine[t]] - base
            for e in edges:
                first = edge_ends[e, 0] == v
                u = edge_ends[e, 1] if first else edge_ends[e, 0]
                theirs = np.flatnonzero(alive[u, : sizes[u]])
                costs, most = np.empty((len(theirs), strategies)), np.empty((strategies, strategies))
                width = sizes[edge_ends[e, 1]]
                for p in range(prices if edge_priced[e] else 1):
                    at_price = priced[p] if edge_priced[e] else common
                    for j in range(len(theirs)):
                        for k in range(strategies):
                            row, column = (mine[k], theirs[j]) if first else (theirs[j], mine[k])
                            costs[j, k] = at_price[edge_offsets[e] + row * width + column]
                    largest_differences(costs, most)
                    for k in range(strategies):
                        if most[k, k] == -np.inf:
                            impossible[k] = True
                            continue
                        for q in range(p, p + 1 if edge_priced[e] else prices):
                            for t in range(strategies):
                                excess[q, k, t] += most[k, t]
            stay = np.ones(strategies, dtype=np.bool_)
            drop_dominated(excess, impossible, stay)
            left = 0
            for k in range(strategies):
                alive[v, mine[k]] = stay[k]
                left += stay[k]
            if left < strategies:
                changed = True
                for e in edges:
                    u = edge_ends[e, 0] + edge_ends[e, 1] - v
                    due[u] = reducible[u]
        if not changed:
            break
