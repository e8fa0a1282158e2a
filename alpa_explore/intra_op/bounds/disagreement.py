"""Close the gap between a choice and a dual bound: solve exactly the region of nodes where the two disagree.

With the costs reparameterised by messages (`messages`), bound = Σ least node costs + Σ least edge entries. A choice x
that takes every least entry outside a set A of nodes cannot be improved outside A, whatever is chosen inside. With

    opt(A) = least cost of A alone, where an edge from A to a node outside counts its least entry in the row of A's node

bound + opt(A) is still a lower bound for the whole problem. Where x, with its part in A replaced by the optimum of A,
also takes the least entries of the edges that leave A, it is proven optimal. Otherwise A grows by the nodes where it
does not (B. Savchynskyy et al., "Global MAP-optimality by shrinking the combinatorial search area with convex
relaxation", NeurIPS 2013). A also improves x: the optimum of A given the rest of x is never worse than x. Where opt(A)
is too wide to compute, A goes on growing for that purpose alone.
"""

from __future__ import annotations

import math

from alpa_explore.intra_op.bounds import tuning
from alpa_explore.intra_op.bounds.descend import descend, is_legal
from alpa_explore.intra_op.bounds.message_bound import Pruned, prune_by_bound, pruned_at
from alpa_explore.intra_op.bounds.messages import flatten
from alpa_explore.intra_op.elimination.eliminate import Limits, cheap_order_of, eliminate, order_of
from alpa_explore.intra_op.problem.restriction import restricted, unrestricted_choices
from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem
from alpa_explore.intra_op.reduction.components import decompose
from alpa_explore.numerics.arrays import Floats


def close_gap(problem: ShardingProblem, pruned: Pruned, gap: float = 0.0) -> Pruned:
    """`pruned` with a better choice, a better bound and fewer strategies kept; stops within a relative `gap`."""
    if pruned.best is None or pruned.messages is None:
        return pruned
    above, base = _above_bound(pruned.messages.reparameterized())
    bound = base
    flat = flatten(problem, math.inf)
    best, best_cost = pruned.best, problem.evaluate(pruned.best)
    candidate, region, too_wide = best, set[int](), False
    for number in range(tuning.REGION_ROUNDS):
        share = tuning.GAP_SHARE if number else tuning.FIRST_GAP_SHARE
        larger = region | _disagreeing(above, candidate, (best_cost - base) * share)
        if too_wide:
            larger |= {u for edge in problem.edges for u in edge if (edge[0] in larger) != (edge[1] in larger)}
        if len(larger) == len(region):
            break
        region, nodes = larger, sorted(larger)
        candidates = []
        if not too_wide and (alone := _optimum(_on_region(above, nodes))) is not None:
            bound = max(bound, base + alone[1])
            candidate = _replaced(best, nodes, alone[0])
            candidates = [candidate, descend(problem, candidate, flat)]
        else:
            too_wide = True
        if (given_rest := _optimum(_on_region(problem, nodes, best))) is None:
            break
        candidates.append(descend(problem, _replaced(best, nodes, given_rest[0]), flat))
        for choices in candidates:
            if is_legal(problem, choices) and problem.evaluate(choices) < best_cost:
                best, best_cost = choices, problem.evaluate(choices)
        if too_wide:
            candidate = best
        if best_cost - bound <= max(tuning.PROVEN_GAP, gap) * best_cost:
            break
    return pruned_at(problem, pruned.messages, best, bound, gap)


def _above_bound(reparameterized: ShardingProblem) -> tuple[ShardingProblem, float]:
    """The problem with the least entry of every node and edge subtracted, and the sum of these entries: the bound."""
    least_nodes = [float(c.min()) for c in reparameterized.node_costs]
    least_edges = [float(m.min()) for m in reparameterized.edge_costs]
    above = ShardingProblem(
        name="above the bound",
        edges=reparameterized.edges,
        node_costs=tuple(c - least for c, least in zip(reparameterized.node_costs, least_nodes, strict=True)),
        edge_costs=tuple(m - least for m, least in zip(reparameterized.edge_costs, least_edges, strict=True)),
    )
    return above, sum(least_nodes) + sum(least_edges)


def _disagreeing(above: ShardingProblem, choices: Choices, threshold: float) -> set[int]:
    """Nodes where `choices` pays more than `threshold` above the bound, at the node or at one of its edges."""
    nodes = {v for v, costs in enumerate(above.node_costs) if costs[choices[v]] > threshold}
    for (a, b), matrix in zip(above.edges, above.edge_costs, strict=True):
        if matrix[choices[a], choices[b]] > threshold:
            nodes |= {a, b}
    return nodes


def _on_region(problem: ShardingProblem, nodes: list[int], rest: Choices | None = None) -> ShardingProblem:
    """The problem on `nodes`; the others hold the choices `rest`, or what costs least on each edge by itself."""
    place = {v: i for i, v in enumerate(nodes)}
    costs = [problem.node_costs[v] for v in nodes]
    edges, matrices = [], []

    def add_leaving_edge(v: int, u: int, rows: Floats) -> None:
        costs[place[v]] = costs[place[v]] + (rows.min(axis=1) if rest is None else rows[:, rest[u]])

    for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        if a in place and b in place:
            edges.append((place[a], place[b]))
            matrices.append(matrix)
        elif a in place:
            add_leaving_edge(a, b, matrix)
        elif b in place:
            add_leaving_edge(b, a, matrix.T)
    return ShardingProblem(
        name=f"a region of {problem.name}", node_costs=tuple(costs), edges=tuple(edges), edge_costs=tuple(matrices)
    )


def _replaced(choices: Choices, nodes: list[int], replacement: Choices) -> Choices:
    changed = list(choices)
    for v, choice in zip(nodes, replacement, strict=True):
        changed[v] = choice
    return tuple(changed)


def _optimum(region: ShardingProblem) -> tuple[Choices, float] | None:
    """An optimal choice and its cost; None when the region is too wide."""
    parts = decompose(region, dominance=False)
    part_choices = []
    for component in parts.components:
        if (choices := _component_optimum(component)) is None:
            return None
        part_choices.append(choices)
    restored = parts.restore(part_choices)
    return restored, region.evaluate(restored)


def _component_optimum(component: ShardingProblem) -> Choices | None:
    if (order := cheap_order_of(component)) is not None:
        return eliminate(component, order)
    pruned = prune_by_bound(component)
    if pruned.best is not None and pruned.closed:
        return pruned.best
    parts = decompose(restricted(component, pruned.kept), dominance=True)
    limits = Limits(
        joined_entries=tuning.REGION_JOINED_ENTRIES,
        largest_table=tuning.REGION_TABLE_ENTRIES,
        table_entries=tuning.REGION_TOTAL_ENTRIES,
    )
    part_choices = []
    for part in parts.components:
        if not limits.allow(order := order_of(part)):
            return None
        part_choices.append(eliminate(part, order))
    return unrestricted_choices(pruned.kept, parts.restore(part_choices))
