"""Arc consistency: drop strategies without a legal partner on some edge, until every one left has one on each; and
`possible_strategies`: what a choice within a memory limit can have at every node, as far as it is quickly seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.reduction.factor_graph import Contradiction
from alpa_explore.numerics.arrays import Flags, Ints

Neighbour = tuple[Flags, int]
"""(legal, u): legal[i, j] is True where strategy i of a node and strategy j of its neighbour u are legal together."""


def propagate(alive: list[Flags], neighbours: Sequence[Sequence[Neighbour]], changed: Iterable[int]) -> None:
    """Clear `alive[v][i]` wherever strategy i of v has no living legal partner at some neighbour, to the fixed point.

    `neighbours[v]` need only hold the edges of v that forbid something; `changed` are the nodes to begin with. A node
    may end with no strategy at all: then the problem is infeasible.
    """
    queue = deque(changed)
    queued = set(queue)
    while queue:
        v = queue.popleft()
        queued.discard(v)
        supported = alive[v].copy()
        for legal, u in neighbours[v]:
            supported &= legal @ alive[u]
        if supported.sum() < alive[v].sum():
            alive[v] = supported
            affected = {u for _, u in neighbours[v]} - queued
            queue.extend(affected)
            queued |= affected


def possible_strategies(problem: ShardingProblem, memory: MemoryLimit) -> tuple[Ints, ...]:
    """For every node the strategies that pass arc consistency and fit with all other items at their smallest.

    Raises Contradiction when a node has none.
    """
    alive: list[Flags] = [costs < FORBIDDEN for costs in problem.node_costs]
    neighbours: list[list[Neighbour]] = [[] for _ in alive]
    tables: dict[int, Flags | None] = {}  # many edges share one
    for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        if id(matrix) not in tables:
            tables[id(matrix)] = matrix < FORBIDDEN if matrix.size and matrix.max() >= FORBIDDEN else None
        legal = tables[id(matrix)]
        if legal is not None:
            neighbours[a].append((legal, b))
            neighbours[b].append((legal.T, a))
    changed = set(range(len(alive)))
    while changed:
        propagate(alive, neighbours, changed)
        for v, flags in enumerate(alive):
            if not flags.any():
                raise Contradiction(v)
        changed = {u for v in memory.drop_overflowing(alive) for u in (v, *(u for _, u in neighbours[v]))}
    return tuple(np.flatnonzero(flags) for flags in alive)
