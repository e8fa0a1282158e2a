"""Condense a problem with a memory limit: nodes whose strategy follows from a neighbour's become part of it.

    follower      node b, where for every strategy of its neighbour a only one strategy of b can be in a best choice:
                  the only legal one; or, where a is b's only neighbour, a cheapest one that also holds least memory
    dominance     a strategy is dropped when another one is never worse, in cost (see `reduction.dominance`) and in
                  the bytes of every item

With choice k = f(i) of b for strategy i of a: c_a[i] += c_b[f(i)] + E[i, f(i)], the edges and the items of b become
edges and items of a with their rows in the order f. In the training graphs of the contest four nodes in five follow.
Both keep at least one optimal choice within the limit.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from alpa_explore.intra_op.composition.contraction.dominance import undominated
from alpa_explore.intra_op.problem.memory_limit import Item, MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, Choices, ShardingProblem
from alpa_explore.intra_op.reduction.factor_graph import Contradiction, without_forbidden
from alpa_explore.iopddl import tuning
from alpa_explore.numerics.arrays import Floats, Ints

_Interval = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Condensed:
    """The smaller problem with its limit: the same least cost within the limit."""

    problem: ShardingProblem
    memory: MemoryLimit
    nodes: tuple[int, ...]
    """For each node its number in the original problem."""
    kept: tuple[Ints, ...]
    """For each node its strategies there."""
    followers: tuple[tuple[int, int, Ints], ...]
    """(b, a, f) in the order in which they were merged: strategy f[i] of b where a has its original strategy i."""

    def restore(self, choices: Sequence[int]) -> Choices:
        """The choice for the original problem that belongs to `choices`."""
        restored = [0] * (len(self.nodes) + len(self.followers))
        for v, kept, choice in zip(self.nodes, self.kept, choices, strict=True):
            restored[v] = int(kept[choice])
        for b, a, f in reversed(self.followers):
            restored[b] = int(f[restored[a]])
        return tuple(restored)


def condense(
    problem: ShardingProblem, memory: MemoryLimit, kept: Sequence[Ints], deadline: float = math.inf
) -> Condensed:
    """Merge followers and drop dominated strategies until neither is left; node v has the strategies `kept[v]` only.

    What is not done by `deadline` (of time.perf_counter), apart from the first followers, is left out. Raises
    Contradiction where no legal choice is left.
    """
    state = _State(problem, memory, kept)
    state.merge_followers(math.inf)
    touched = {v for v, present in enumerate(state.present) if present}
    for _ in range(tuning.DOMINANCE_ROUNDS):
        changed: set[int] = set()
        for v in sorted(touched):
            if time.perf_counter() > deadline:
                break
            if state.present[v] and state.drop_dominated(v):
                changed |= {v, *state.edges[v]}
        if not changed:
            break
        touched = changed | state.merge_followers(deadline)
    return state.result(problem.name, memory)


def _rows(table: Floats, rows: Ints) -> Floats:
    return table[rows]


def _only_legal(table: Floats) -> Ints | None:
    """For each column the only row that is legal there; None where a column has several."""
    legal = np.isfinite(table)
    if np.count_nonzero(legal) > table.shape[1] or (legal.sum(axis=0) > 1).any():
        return None
    return np.asarray(legal.argmax(axis=0))


class _State:
    """Mutable; lives inside one pass. All costs have inf where forbidden."""

    def __init__(self, problem: ShardingProblem, memory: MemoryLimit, kept: Sequence[Ints]) -> None:
        self.costs: list[Floats] = [without_forbidden(c)[k] for c, k in zip(problem.node_costs, kept, strict=True)]
        self.kept: list[Ints] = list(kept)
        self.original = [len(vector) for vector in problem.node_costs]
        self.present = [True] * len(self.costs)
        self.edges: list[dict[int, Floats]] = [{} for _ in self.costs]
        self.items: list[dict[_Interval, Floats]] = [{} for _ in self.costs]
        self.followers: list[tuple[int, int, Ints]] = []
        self.unchecked: deque[tuple[int, int]] = deque()
        # Files repeat few tables many times: what is computed from equal ones is computed once, and is one array again.
        self.derived: dict[tuple[Any, ...], Any] = {}
        self.sources: list[Floats] = []  # keeps them, so that no id is used twice
        for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):

            def legal_part(matrix: Floats = matrix, a: int = a, b: int = b) -> Floats:
                return without_forbidden(matrix)[np.ix_(kept[a], kept[b])]

            self._add_edge(a, b, self._once("part", matrix, kept[a].tobytes(), kept[b].tobytes(), make=legal_part))
        for item in memory.items:
            if item.end > item.start:
                self._add_item(item.node, (item.start, item.end), item.usage[kept[item.node]])

    def merge_followers(self, deadline: float) -> set[int]:
        """Merge followers until none is left; returns the nodes whose tables or items changed."""
        changed: set[int] = set()
        while self.unchecked and time.perf_counter() < deadline:
            b, a = self.unchecked.popleft()
            if a not in self.edges[b] or (f := self._given(b, a)) is None:
                continue
            if len(self.edges[b]) > len(self.edges[a]) and (inverse := self._given(a, b)) is not None:
                # Each follows from the other: the one with fewer edges has fewer tables to move.
                b, a, f = a, b, inverse
            changed |= self._merge(b, a, f)
        return {v for v in changed if self.present[v]}

    def drop_dominated(self, v: int) -> bool:
        """Drop dominated strategies of v; True where there were any. Raises Contradiction where v has none left."""
        strategies = len(self.costs[v])
        columns = sum(table.shape[1] for table in self.edges[v].values()) + sum(
            min(strategies, tuning.DOMINANCE_AMOUNTS) for _ in self.items[v]
        )
        if strategies <= 1 or strategies * strategies * columns > tuning.DOMINANCE_WORK:
            return False
        tables = list(self.edges[v].values())
        key = (
            "undominated",
            self.costs[v].tobytes(),
            *sorted(map(id, tables)),
            "",
            *(usage.tobytes() for usage in self.items[v].values()),
        )
        kept = self.derived.get(key)
        if kept is None:
            self.sources += tables
            kept = self.derived[key] = undominated(self.costs[v], [*tables, *self._ranked_usage(v)])
        if len(kept) == len(self.costs[v]):
            return False
        self._restrict(v, kept)
        return True

    def result(self, name: str, memory: MemoryLimit) -> Condensed:
        """What is left as a problem."""
        nodes = tuple(v for v, present in enumerate(self.present) if present)
        position = {v: i for i, v in enumerate(nodes)}
        pairs = [(v, u, table) for v in nodes for u, table in self.edges[v].items() if v < u]
        return Condensed(
            problem=ShardingProblem(
                name=name,
                node_costs=tuple(np.minimum(self.costs[v], FORBIDDEN) for v in nodes),
                edges=tuple((position[v], position[u]) for v, u, _ in pairs),
                edge_costs=tuple(np.ascontiguousarray(np.minimum(table, FORBIDDEN)) for _, _, table in pairs),
            ),
            memory=MemoryLimit(
                items=tuple(
                    Item(node=position[v], start=start, end=end, usage=usage)
                    for v in nodes
                    for (start, end), usage in self.items[v].items()
                ),
                limit=memory.limit,
                fixed_bytes=memory.fixed_bytes,
            ),
            nodes=nodes,
            kept=tuple(self.kept[v] for v in nodes),
            followers=tuple(self.followers),
        )

    def _given(self, b: int, a: int) -> Ints | None:
        """For each strategy of a the strategy of b that follows from it; None where none does."""
        table = self.edges[b][a]
        if len(self.edges[b]) > 1:
            grows = len(self.costs[a]) > tuning.FOLLOWER_GROWTH * len(self.costs[b]) and len(self.edges[b]) > 2
            return None if grows else self._once("only", table, make=lambda: _only_legal(table))
        total = self.costs[b][:, None] + table
        least = total.min(axis=0)
        # Of equally cheap strategies the one that holds least.
        usages = list(self.items[b].values())
        tied = np.where(total <= least, usages[0][:, None] if len(usages) == 1 else 0.0, np.inf)
        f = tied.argmin(axis=0)
        legal = np.isfinite(total)
        if any((legal & (usage[:, None] < usage[f][None, :])).any() for usage in usages):
            return None
        return np.asarray(f)

    def _merge(self, b: int, a: int, f: Ints) -> set[int]:
        """Make b part of a; returns the nodes whose tables or items changed."""
        table = self.edges[b].pop(a)
        del self.edges[a][b]
        self.costs[a] = self.costs[a] + (self.costs[b][f] + table[f, np.arange(len(f))])
        for interval, usage in self.items[b].items():
            self._add_item(a, interval, usage[f])
        neighbours = list(self.edges[b])
        for u in neighbours:
            other = self.edges[b].pop(u)
            del self.edges[u][b]
            self._add_edge(a, u, self._once("rows", other, f.tobytes(), make=partial(_rows, other, f)))
            self._check_if_leaf(u)
        by_original = np.zeros(self.original[a], dtype=np.int64)
        by_original[self.kept[a]] = self.kept[b][f]
        self.followers.append((b, a, by_original))
        self.present[b], self.items[b] = False, {}
        impossible = np.isinf(self.costs[a])
        if impossible.any():
            self._restrict(a, np.flatnonzero(~impossible))
        self._check_if_leaf(a)
        return {a, *neighbours}

    def _check_if_leaf(self, v: int) -> None:
        if len(self.edges[v]) == 1:
            self.unchecked.extend((v, u) for u in self.edges[v])

    def _once(
        self, what: str, table: Floats, *rest: int | bytes, make: Callable[[], Any], beside: Floats | None = None
    ) -> Any:
        """What `make` computes from `table`, the table `beside` it and what `rest` says; the same object each time."""
        key = (what, id(table), *rest)
        if key not in self.derived:
            self.sources += [table] if beside is None else [table, beside]
            made = self.derived[key] = make()
            if what == "transpose":
                self.sources.append(made)
                self.derived[what, id(made)] = table
        return self.derived[key]

    def _ranked_usage(self, v: int) -> list[Floats]:
        """The usage of v's items as a table in which one strategy is better than another only where it never holds
        more: column j of an item is inf for strategies that hold more than its j-th smallest amount."""
        columns = {}
        for usage in self.items[v].values():
            amounts, rank = np.unique(usage, return_inverse=True)
            if len(amounts) > 1:
                columns[rank.tobytes()] = np.where(rank[:, None] > np.arange(len(amounts)), np.inf, 0.0)
        return [np.concatenate(list(columns.values()), axis=1)] if columns else []

    def _restrict(self, v: int, kept: Ints) -> None:
        if not kept.size:
            raise Contradiction(v)
        self.costs[v] = self.costs[v][kept]
        self.kept[v] = self.kept[v][kept]
        for u, table in self.edges[v].items():
            rows = self._once("rows", table, kept.tobytes(), make=partial(_rows, table, kept))
            self._set_edge(v, u, rows)
        self.items[v] = {interval: usage[kept] for interval, usage in self.items[v].items()}

    def _add_edge(self, a: int, b: int, table: Floats) -> None:
        present = self.edges[a].get(b)
        if present is not None:
            table = self._once("sum", present, id(table), make=lambda: present + table, beside=table)
        self._set_edge(a, b, table)

    def _set_edge(self, a: int, b: int, table: Floats) -> None:
        self.edges[a][b], self.edges[b][a] = table, self._once("transpose", table, make=lambda: table.T)
        self.unchecked += ((a, b), (b, a))

    def _add_item(self, v: int, interval: _Interval, usage: Floats) -> None:
        present = self.items[v].get(interval)
        self.items[v][interval] = usage if present is None else present + usage
