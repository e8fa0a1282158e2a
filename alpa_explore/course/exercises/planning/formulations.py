"""Exercises of lesson 06: formulations."""

from __future__ import annotations

from random import Random
from textwrap import dedent
from typing import NamedTuple

import numpy as np

from alpa_explore import units
from alpa_explore.course.definition import Exercise, Mistake
from alpa_explore.course.kinds import Number
from alpa_explore.figures.course.planning.elimination import elimination_steps, width
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution, Status
from alpa_explore.intra_op.solve import solve

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
    def largest(self) -> int:
        """Entries of the largest table."""
        return max(step.entries for step in elimination_steps([self.strategies] * self.nodes, self.edges))

    @property
    def width(self) -> int:
        """Neighbours of the node that has most when it goes."""
        return width(elimination_steps([self.strategies] * self.nodes, self.edges))


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


EXERCISES = (
    Exercise(
        id="06.1",
        title="The largest table",
        draw=lambda random: Graph(
            kind=random.choice(("cycle", "ladder")), nodes=2 * random.randint(4, 8), strategies=random.randint(3, 9)
        ),
        question=lambda graph: (
            f"A {graph.kind} of {graph.nodes} nodes"
            + (f" (two chains of {graph.nodes // 2}, joined at every node)" if graph.kind == "ladder" else "")
            + f", {graph.strategies} strategies each. You eliminate its nodes in the best order. How many entries has "
            "the largest table that a node leaves?"
        ),
        kind=lambda _: Number(tolerance=0.0),
        truth=lambda graph: graph.largest,
        why=lambda graph, truth: (
            f"In the best order no node has more than {graph.width} neighbours when it goes, so its table has "
            f"{graph.strategies}^{graph.width} = {truth} entries, however long the {graph.kind} is. There are "
            f"{graph.strategies}^{graph.nodes} choices."
        ),
        mistakes=lambda graph, _: [
            Mistake(
                answer=graph.strategies,
                reason=f"That is enough for a chain. In a {graph.kind} a node that goes has more than one neighbour.",
            ),
            Mistake(
                answer=graph.strategies ** (graph.width + 1),
                reason="That is the join, with the strategies of the node itself. Of those the best is taken.",
            ),
        ],
        hints=lambda graph: (
            f"Draw the {graph.kind} and take a node away. Which nodes must know what it costs?",
            "A table has an entry for each combination of the strategies of these neighbours.",
            f"There are always {graph.width} of them, at most.",
        ),
        code=lambda graph: dedent(f"""\
            from alpa_explore.figures.course.planning.elimination import elimination_steps

            steps = elimination_steps([{graph.strategies}] * {graph.nodes}, {graph.edges})
            answer = max(step.entries for step in steps)
            """),
        premise="the width is 2",
        holds=lambda graph: graph.width == 2,
    ),
    Exercise(
        id="06.2",
        title="Eliminate a node",
        draw=_middle,
        question=lambda middle: (
            f"Node 1 stands between nodes 0 and 2. Its strategies cost {list(middle.costs)}; `R01 = "
            f"{[list(row) for row in middle.left]}`, `R12 = {[list(row) for row in middle.right]}`. It is "
            "eliminated.\n\n"
            f"Which entry does its table have for strategy {middle.i} of node 0 and strategy {middle.j} of node 2? "
            "Strategies are counted from 0."
        ),
        kind=lambda _: Number(tolerance=0.0),
        truth=lambda middle: solve(middle.problem).objective,
        why=lambda middle, truth: (
            f"min over k of R01[{middle.i}][k] + c[k] + R12[k][{middle.j}] = min("
            + ", ".join(map(str, middle.sums))
            + f") = {truth:g}."
        ),
        mistakes=lambda middle, _: [
            Mistake(
                answer=_by_cheapest(middle),
                reason="That takes the strategy of node 1 that is cheapest in itself. Its edges count as well.",
            )
        ],
        hints=lambda middle: (
            "The entry is the least cost of node 1 and its two edges, with the neighbours fixed.",
            f"Node 1 has three strategies. For each add row {middle.i} of R01, its cost, and column {middle.j} of R12.",
            "Take the least of the three sums.",
        ),
        code=lambda middle: dedent(f"""\
            c, i, j = {list(middle.costs)}, {middle.i}, {middle.j}
            R01 = {[list(row) for row in middle.left]}
            R12 = {[list(row) for row in middle.right]}
            answer = min(R01[i][k] + c[k] + R12[k][j] for k in range(3))
            """),
        premise="the strategy that is cheapest in itself is not the best",
        holds=lambda middle: solve(middle.problem).objective < _by_cheapest(middle),
    ),
    Exercise(
        id="06.3",
        title="How far at most",
        draw=_answer,
        question=lambda answer: (
            f"A solver was stopped. Its best choice costs {answer.cost} µs, and it has proven that no choice costs "
            f"less than {answer.bound} µs. By which share of its cost could the choice be improved, at most?"
        ),
        kind=lambda _: Number(unit="share", tolerance=0.005),
        truth=lambda answer: answer.gap,
        why=lambda answer, truth: (
            f"({answer.cost} − {answer.bound}) / {answer.cost} = {units.percent(truth)}. It may be the optimum "
            "already: then only the bound is too low."
        ),
        mistakes=lambda answer, _: [
            Mistake(
                answer=answer.bound / answer.cost,
                reason="That is what would remain, at least. The question is what could be saved.",
            )
        ],
        hints=lambda _: (
            "The optimum is between the bound and the cost.",
            "Could it be at the bound? What would be saved then?",
            "(cost − bound) / cost.",
        ),
        code=lambda answer: f"answer = ({answer.cost} - {answer.bound}) / {answer.cost}\n",
        premise="the gap is not closed",
        holds=lambda answer: 0 < answer.gap < 0.5,
    ),
)
"""In the order of their ids."""
