"""Exercises of lesson 06: formulations."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import numpy as np

from alpa_explore.figures.course.planning.elimination import elimination_steps, width
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution, Status
from alpa_explore.intra_op.solve import solve as solve

Table = tuple[tuple[int, ...], ...]


class Graph(NamedTuple):
    """A graph of some kind whose nodes have equally many strategies."""

    kind: str
    """'chain', 'cycle' or 'ladder'."""
    nodes: int
    strategies: int

    @property
    def edges(self) -> list[tuple[int, int]]:
        """A ladder has its even and its odd nodes as sides."""
        if self.kind == "ladder":
            sides = [(v, v + 2) for v in range(self.nodes - 2)]
            return sides + [(v, v + 1) for v in range(0, self.nodes, 2)]
        chain = [(v, v + 1) for v in range(self.nodes - 1)]
        return chain + ([(0, self.nodes - 1)] if self.kind == "cycle" else [])

    @property
    def width(self) -> int:
        """Neighbours of the node that has most when it goes."""
        return width(elimination_steps([self.strategies] * self.nodes, self.edges))


class Leaving(NamedTuple):
    """A node that is eliminated, and the numbers of strategies of its neighbours."""

    own: int
    around: tuple[int, ...]

    @property
    def entries(self) -> int:
        """Of the table that it leaves."""
        last = len(self.around)
        steps = elimination_steps([*self.around, self.own], [(v, last) for v in range(last)], [last])
        return steps[0].entries


class Middle(NamedTuple):
    """A chain of three nodes, of which the middle one is eliminated."""

    costs: tuple[int, ...]
    left: Table
    """R01: three strategies of node 0, those of node 1."""
    right: Table
    """R12."""
    i: int
    j: int

    @property
    def sums(self) -> list[int]:
        """For each strategy of node 1 what it costs with its edges."""
        return [self.left[self.i][k] + cost + self.right[k][self.j] for k, cost in enumerate(self.costs)]

    @property
    def problem(self) -> ShardingProblem:
        """With node 0 at strategy i and node 2 at j."""
        zero, two = np.full(3, 0.0), np.full(3, 0.0)
        zero[np.arange(3) != self.i] = two[np.arange(3) != self.j] = 1e18
        return ShardingProblem(
            name="middle",
            node_costs=(zero, np.array(self.costs, dtype=float), two),
            edges=((0, 1), (1, 2)),
            edge_costs=(np.array(self.left, dtype=float), np.array(self.right, dtype=float)),
        )


class Answer(NamedTuple):
    """What a solver reports, in microseconds."""

    cost: int
    bound: int

    @property
    def gap(self) -> float:
        """As the library computes it."""
        return ShardingSolution(
            choices=(),
            objective=1e-6 * self.cost,
            bound=1e-6 * self.bound,
            status=Status.TIME_LIMIT,
            solver="auto",
            seconds=0.0,
            variables=0,
            constraints=0,
        ).gap


def _table(random: Random) -> Table:
    return tuple(tuple(random.randint(0, 9) for _ in range(3)) for _ in range(3))


def _leaving(random: Random) -> Leaving:
    around = random.sample((4, 9, 16, 25, 36), random.choice((3, 4)))
    return Leaving(random.choice((4, 9, 16, 25, 36)), tuple(around))


def _middle(random: Random) -> Middle:
    while True:
        middle = Middle(
            costs=tuple(random.randint(0, 9) for _ in range(3)),
            left=_table(random),
            right=_table(random),
            i=random.randrange(3),
            j=random.randrange(3),
        )
        if min(middle.sums) < _by_cheapest(middle) and middle.costs.count(min(middle.costs)) == 1:
            return middle


def _by_cheapest(middle: Middle) -> int:
    return middle.sums[int(np.argmin(middle.costs))]


def _answer(random: Random) -> Answer:
    cost = random.randint(300, 900)
    return Answer(cost=cost, bound=cost - random.randint(5, 60))
