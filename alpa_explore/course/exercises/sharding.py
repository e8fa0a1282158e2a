"""Exercises of lesson 05: sharding."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import NamedTuple

import numpy as np

from alpa_explore.course.examples import MLP
from alpa_explore.figures.course.planning.workbench import greedy
from alpa_explore.intra_op.ilp.enumerated_ilp import relax as relax
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
