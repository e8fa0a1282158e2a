"""Dominance (dead-end elimination): a problem without the strategies that are never better than another of their node.

Strategy k is dropped when it is impossible, or when for some k' that stays, at each price,

    costs[k'] − costs[k] + Σ_edges max_j (edge[k', j] − edge[k, j]) ≤ 0

Of a contraction the table over the kept nodes stays the same. Blocks of transformers keep about half of their
strategies, and a contraction then takes a third to a tenth of the steps. The contest applies the rule to a node at a
time, at one price (`undominated`). The kernels are compiled by numba.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpa_explore.intra_op.composition.contraction import tuning
from alpa_explore.intra_op.composition.contraction.priced_problem import (
    COMMON,
    FREE,
    PRICED,
    PricedProblem,
    ProblemForm,
)
from alpa_explore.numerics.arrays import Flags, Floats, Ints
from alpa_explore.numerics.compiled import compiled


def without_dominated(problem: PricedProblem, keep: Sequence[int]) -> tuple[PricedProblem, tuple[Ints, ...]]:
    """`problem` with fewer strategies of the nodes that are not in `keep`, and for every node those that are left."""
    form = problem.form
    alive = _undominated(problem, keep)
    left = tuple(np.flatnonzero(of_node[:size]) for of_node, size in zip(alive, form.sizes, strict=True))
    if all(len(strategies) == size for strategies, size in zip(left, form.sizes, strict=True)):
        return problem, left
    locations = (*form.node_locations, *form.edge_locations)
    strategies = [*left, *((left[a][:, None] * form.sizes[b] + left[b]).ravel() for a, b in form.edges)]
    kept = {
        space: np.concatenate(
            [
                np.zeros(0, dtype=np.int64),
                *(at.offset + of for at, of in zip(locations, strategies, strict=True) if at and at.space == space),
            ]
        )
        for space in (COMMON, PRICED)
    }
    reduced = PricedProblem(
        form=ProblemForm.of([len(of) for of in left], form.edges, [at.space if at else FREE for at in locations]),
        common_costs=problem.common_costs[kept[COMMON]],
        priced_costs=np.ascontiguousarray(problem.priced_costs[:, kept[PRICED]]),
    )
    return reduced, left


def _undominated(problem: PricedProblem, keep: Sequence[int]) -> Flags:
    """[nodes, strategies]: whether a strategy stays; true beyond the last strategy of a node."""
    form = problem.form
    sizes = np.array(form.sizes, dtype=np.int64)
    alive = np.ones((len(sizes), int(sizes.max(initial=1))), dtype=np.bool_)
    reducible = sizes > 1
    reducible[list(keep)] = False
    ends = np.array(form.edges, dtype=np.int64).reshape(-1, 2)
    edges = np.arange(len(ends))
    of_node = np.concatenate([ends[:, 0], ends[:, 1]])
    order = np.argsort(of_node, kind="stable")
    begins = np.searchsorted(of_node[order], np.arange(len(sizes) + 1))
    keep_undominated(
        sizes,
        reducible,
        np.array([-1 if location is None else location.offset for location in form.node_locations], dtype=np.int64),
        np.array([loc is not None and loc.space == PRICED for loc in form.node_locations], dtype=np.bool_),
        ends,
        np.array([location.offset for location in form.edge_locations], dtype=np.int64),
        np.array([location.space == PRICED for location in form.edge_locations], dtype=np.bool_),
        np.concatenate([edges, edges])[order],
        begins.astype(np.int64),
        problem.common_costs,
        problem.priced_costs,
        float(tuning.DOMINANCE_STEPS),
        tuning.DOMINANCE_ROUNDS,
        alive,
    )
    return alive


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
        _largest_differences(np.ascontiguousarray(table[kept].T), most)
        excess[0] += most
    stay = np.ones(len(kept), dtype=np.bool_)
    _drop_dominated(excess, np.zeros(len(kept), dtype=np.bool_), stay)
    return kept[stay]


@compiled(fastmath={"nnan", "nsz", "contract"})
def _largest_differences(costs: Floats, most: Floats) -> None:
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
def _drop_dominated(excess: Floats, impossible: Flags, stay: Flags) -> None:
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
                    _largest_differences(costs, most)
                    for k in range(strategies):
                        if most[k, k] == -np.inf:
                            impossible[k] = True
                            continue
                        for q in range(p, p + 1 if edge_priced[e] else prices):
                            for t in range(strategies):
                                excess[q, k, t] += most[k, t]
            stay = np.ones(strategies, dtype=np.bool_)
            _drop_dominated(excess, impossible, stay)
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
