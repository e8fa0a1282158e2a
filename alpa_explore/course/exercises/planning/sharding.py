"""Exercises of lesson 05: sharding."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise, product
from random import Random
from typing import NamedTuple

import numpy as np

from alpa_explore.course.definition import Exercise
from alpa_explore.course.examples import MLP
from alpa_explore.course.kinds import Number
from alpa_explore.figures.course.planning.workbench import greedy
from alpa_explore.intra_op.ilp.enumerated_ilp import relax
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.solve import solve

_MOST_MICROBATCHES = 256
"""Where the search of exercise 05.4 ends."""
Table = tuple[tuple[int, ...], ...]


class Small(NamedTuple):
    """A chain of nodes with whole costs."""

    nodes: Table
    edges: tuple[Table, ...]

    @property
    def problem(self) -> ShardingProblem:
        """As the library solves it."""
        return ShardingProblem(
            name="by hand",
            node_costs=tuple(np.array(costs, dtype=float) for costs in self.nodes),
            edges=tuple((v, v + 1) for v in range(len(self.edges))),
            edge_costs=tuple(np.array(matrix, dtype=float) for matrix in self.edges),
        )

    def words(self) -> str:
        """The costs as code."""
        nodes = ", ".join(f"c{v} = {list(costs)}" for v, costs in enumerate(self.nodes))
        edges = ", ".join(f"R{v}{v + 1} = {[list(row) for row in matrix]}" for v, matrix in enumerate(self.edges))
        return f"`{nodes}`, `{edges}`"


def _small(random: Random) -> Small:
    """Three nodes with two strategies, for which greedy is not optimal."""
    while True:
        nodes = tuple(tuple(random.randint(0, 4) for _ in range(2)) for _ in range(3))
        edges = tuple(tuple(tuple(random.randint(0, 6) for _ in range(2)) for _ in range(2)) for _ in range(2))
        small = Small(nodes=nodes, edges=edges)
        problem = small.problem
        if problem.evaluate(greedy(problem)) > solve(problem).objective > 0:
            return small


class Sizes(NamedTuple):
    """Strategies of the nodes of a chain."""

    strategies: tuple[int, ...]

    @property
    def problem(self) -> ShardingProblem:
        """A problem of this size."""
        counts = self.strategies
        return ShardingProblem(
            name="sizes",
            node_costs=tuple(np.zeros(count) for count in counts),
            edges=tuple((v, v + 1) for v in range(len(counts) - 1)),
            edge_costs=tuple(np.zeros((a, b)) for a, b in pairwise(counts)),
        )


class Cycle(NamedTuple):
    """An odd cycle whose neighbours pay for choosing alike."""

    nodes: int
    cost: int

    @property
    def problem(self) -> ShardingProblem:
        """Two strategies a node, free in themselves."""
        ring = tuple((v, (v + 1) % self.nodes) for v in range(self.nodes))
        return ShardingProblem(
            name="cycle",
            node_costs=tuple(np.zeros(2) for _ in range(self.nodes)),
            edges=ring,
            edge_costs=tuple(self.cost * np.eye(2) for _ in ring),
        )

    def gap(self) -> float:
        """Optimum minus the bound of the relaxation."""
        return solve(self.problem).objective - relax(self.problem).objective


class Block(NamedTuple):
    """An MLP on a node."""

    devices: int
    tokens: int

    def at(self, count: int) -> MLP:
        """With B = `count`."""
        return MLP(cluster=f"1x{self.devices}:a100@alpa", tokens=self.tokens, num_microbatches=count)


@lru_cache(maxsize=64)
def _least_data_parallel(block: Block) -> int:
    """The least B with which both products are divided by rows."""
    return next(b for b in range(1, _MOST_MICROBATCHES) if solve(block.at(b).problem).choices == (0, 0))


def _rows_seconds(block: Block, count: int) -> float:
    return block.at(count).problem.evaluate((0, 0))


EXERCISES = (
    Exercise(
        id="05.1",
        draw=_small,
        kind=lambda _: Number(tolerance=0.0),
        truth=lambda small: solve(small.problem).objective,
        values={
            "words": lambda n, _: n.words(),
            "best": lambda n, _: list(solve(n.problem).choices),
            "greedy": lambda n, _: list(greedy(n.problem)),
            "paid": lambda n, _: n.problem.evaluate(greedy(n.problem)),
            "nodes": lambda n, _: [list(costs) for costs in n.nodes],
            "edges": lambda n, _: [[list(row) for row in matrix] for matrix in n.edges],
        },
        wrong=lambda small, _: (small.problem.evaluate(greedy(small.problem)),),
        holds=lambda small: (
            min(small.problem.evaluate(choices) for choices in product(range(2), repeat=3))
            == solve(small.problem).objective
            < small.problem.evaluate(greedy(small.problem))
        ),
    ),
    Exercise(
        id="05.2",
        draw=lambda random: Sizes(strategies=tuple(random.randint(3, 12) for _ in range(5))),
        kind=lambda _: Number(tolerance=0.0),
        truth=lambda sizes: sizes.problem.variables,
        values={
            "all": lambda n, _: sum(n.strategies),
            "pairs": lambda n, _: " + ".join(f"{a}·{b}" for a, b in pairwise(n.strategies)),
            "others": lambda n, truth: truth - sum(n.strategies),
        },
        wrong=lambda sizes, truth: (sum(sizes.strategies), truth - sum(sizes.strategies)),
        holds=lambda sizes: sizes.problem.variables > sum(sizes.strategies),
    ),
    Exercise(
        id="05.3",
        draw=lambda random: Cycle(nodes=random.choice((3, 5, 7)), cost=random.randint(2, 9)),
        kind=lambda _: Number(tolerance=0.0),
        truth=lambda cycle: round(cycle.gap(), 6),
        wrong=lambda cycle, _: (0, cycle.nodes * cycle.cost),
        holds=lambda cycle: not relax(cycle.problem).whole and abs(relax(cycle.problem).objective) < 1e-9,
    ),
    Exercise(
        id="05.4",
        draw=lambda random: Block(devices=random.choice((2, 4, 8)), tokens=1024 * random.randint(2, 12)),
        kind=lambda _: Number(tolerance=0.0),
        truth=_least_data_parallel,
        values={
            "enough": lambda n, truth: _rows_seconds(n, truth),
            "fewer": lambda _, truth: truth - 1,
            "too_few": lambda n, truth: _rows_seconds(n, truth - 1),
            "columns": lambda n, truth: n.at(truth).problem.evaluate((1, 2)),
            "most": lambda *_: _MOST_MICROBATCHES,
        },
        wrong=lambda _block, truth: (truth - 1, 2 * truth),
        holds=lambda block: (
            solve(block.at(1).problem).choices == (1, 2)
            and solve(block.at(_least_data_parallel(block) - 1).problem).choices == (1, 2)
            and solve(block.at(2 * _least_data_parallel(block)).problem).choices == (0, 0)
        ),
    ),
)
"""In the order of their ids."""
