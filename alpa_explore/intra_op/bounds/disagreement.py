"""Close the gap between a choice and a dual bound where it opens: solve the part on which they disagree, exactly.

With the costs moved by messages (`messages`), bound = Σ least node costs + Σ least edge entries. A choice x that takes
every least cost outside a set A of nodes is best there whatever happens inside. So with

    opt(A) = least cost of A alone, an edge from A to the rest counted with its least entry in the row of A

bound + opt(A) is still a bound for the whole problem, and where x, with A's part replaced by its optimum, also takes
the least entries on the edges that leave A, it is proven optimal. Otherwise A grows by the nodes where it does not
(B. Savchynskyy et al., "Global MAP-optimality by shrinking the combinatorial search area with convex relaxation",
NeurIPS 2013). A also betters x: its optimum given the rest of x is never worse. Where opt(A) is too wide to find, A
goes on growing for that alone.
"""

from __future__ import annotations

import math

import numpy as np

from alpa_explore.intra_op.bounds.descend import descend, is_legal
from alpa_explore.intra_op.bounds.message_bound import CLOSED, Pruned, prune_by_bound, pruned_at, restricted
from alpa_explore.intra_op.bounds.messages import flatten
from alpa_explore.intra_op.elimination.eliminate import Limits, cheap_order_of, eliminate, order_of
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.reduction.simplify import components, simplify
from alpa_explore.numerics.arrays import Floats

LIMITS = Limits(joined_entries=3e8, largest_table=2e7, table_entries=5e7)
"""About 0.3 s on one core: a part that is wider than this is not worth it."""
FIRST_SHARE, SHARE = 1e-2, 1e-6
"""A node or edge belongs to A when it holds more than this share of the gap: at first the large ones alone."""
ROUNDS = 20

Choices = tuple[int, ...]


def settle(problem: ShardingProblem, pruned: Pruned, gap: float = 0.0) -> Pruned:
    """`pruned` with a better choice, a better bound and fewer strategies kept; stops within a relative `gap`."""
    if pruned.best is None or pruned.messages is None:
        return pruned
    moved = pruned.messages.moved()
    least_nodes = [float(c.min()) for c in moved.node_costs]
    least_edges = [float(m.min()) for m in moved.edge_costs]
    above = ShardingProblem(
        name="above the bound",
        edges=problem.edges,
        node_costs=tuple(c - least for c, least in zip(moved.node_costs, least_nodes, strict=True)),
        edge_costs=tuple(m - least for m, least in zip(moved.edge_costs, least_edges, strict=True)),
    )
    base = bound = sum(least_nodes) + sum(least_edges)
    flat = flatten(problem, math.inf)
    best, known = pruned.best, problem.evaluate(pruned.best)
    tried, inside, wide = best, set[int](), False
    for number in range(ROUNDS):
        larger = inside | _disagreeing(above, tried, (known - base) * (SHARE if number else FIRST_SHARE))
        if wide:
            larger |= {u for edge in problem.edges for u in edge if (edge[0] in larger) != (edge[1] in larger)}
        if len(larger) == len(inside):
            break
        inside, nodes = larger, sorted(larger)
        candidates = []
        if not wide and (alone := _optimum(_part(above, nodes))) is not None:
            bound = max(bound, base + alone[1])
            tried = _replaced(best, nodes, alone[0])
            candidates = [tried, descend(problem, tried, flat)]
        else:
            wide = True
        if (given := _optimum(_part(problem, nodes, best))) is None:
            break
        candidates.append(descend(problem, _replaced(best, nodes, given[0]), flat))
        for candidate in candidates:
            if is_legal(problem, candidate) and problem.evaluate(candidate) < known:
                best, known = candidate, problem.evaluate(candidate)
        if wide:
            tried = best
        if known - bound <= max(CLOSED, gap) * known:
            break
    return pruned_at(problem, pruned.messages, best, bound, gap)


def _disagreeing(above: ShardingProblem, choices: Choices, floor: float) -> set[int]:
    """Nodes at which, or at an edge of which, `choices` pays more than `floor`."""
    found = {v for v, costs in enumerate(above.node_costs) if costs[choices[v]] > floor}
    for (a, b), matrix in zip(above.edges, above.edge_costs, strict=True):
        if matrix[choices[a], choices[b]] > floor:
            found |= {a, b}
    return found


def _part(problem: ShardingProblem, nodes: list[int], rest: Choices | None = None) -> ShardingProblem:
    """The problem on `nodes`; all others hold the choices `rest`, or what costs least on each edge by itself."""
    place = {v: i for i, v in enumerate(nodes)}
    costs = [problem.node_costs[v] for v in nodes]
    edges, matrices = [], []

    def leave(v: int, u: int, rows: Floats) -> None:
        costs[place[v]] = costs[place[v]] + (rows.min(axis=1) if rest is None else rows[:, rest[u]])

    for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        if a in place and b in place:
            edges.append((place[a], place[b]))
            matrices.append(matrix)
        elif a in place:
            leave(a, b, matrix)
        elif b in place:
            leave(b, a, matrix.T)
    return ShardingProblem(
        name=f"a part of {problem.name}", node_costs=tuple(costs), edges=tuple(edges), edge_costs=tuple(matrices)
    )


def _replaced(choices: Choices, nodes: list[int], by: Choices) -> Choices:
    changed = list(choices)
    for v, choice in zip(nodes, by, strict=True):
        changed[v] = choice
    return tuple(changed)


def _optimum(part: ShardingProblem) -> tuple[Choices, float] | None:
    """A best choice and its cost; None when the part is too wide."""
    reduced = simplify(part, dominance=False)
    choices = np.zeros(len(reduced.nodes), dtype=np.int64)
    for nodes, core in components(reduced.core):
        if (found := _core_optimum(core)) is None:
            return None
        choices[list(nodes)] = found
    restored = reduced.restore(tuple(choices.tolist()))
    return restored, part.evaluate(restored)


def _core_optimum(core: ShardingProblem) -> Choices | None:
    if (order := cheap_order_of(core)) is not None:
        return eliminate(core, order)
    pruned = prune_by_bound(core)
    if pruned.best is not None and pruned.closed:
        return pruned.best
    reduced = simplify(restricted(core, pruned.kept), dominance=True)
    choices = np.zeros(len(reduced.nodes), dtype=np.int64)
    for nodes, rest in components(reduced.core):
        if not LIMITS.allow(order := order_of(rest)):
            return None
        choices[list(nodes)] = eliminate(rest, order)
    among = reduced.restore(tuple(choices.tolist()))
    return tuple(int(k[c]) for k, c in zip(pruned.kept, among, strict=True))
