"""Exercises of lesson 05: sharding."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise, product
from random import Random
from textwrap import dedent
from typing import NamedTuple

import numpy as np

from alpa_explore import units
from alpa_explore.course.definition import Exercise, Mistake
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
        title="Solve it by hand",
        draw=_small,
        question=lambda small: (
            f"Three nodes in a chain, two strategies each: {small.words()}. `R01[i][j]` is the cost of strategy i of "
            "node 0 with strategy j of node 1.\n\nWhat does the cheapest choice cost?"
        ),
        kind=lambda _: Number(tolerance=0.0),
        truth=lambda small: solve(small.problem).objective,
        why=lambda small, truth: (
            f"Strategies {list(solve(small.problem).choices)} cost {truth:g}. Greedy, from left to right, takes "
            f"{list(greedy(small.problem))} and pays {small.problem.evaluate(greedy(small.problem)):g}."
        ),
        mistakes=lambda small, _: [
            Mistake(
                answer=small.problem.evaluate(greedy(small.problem)),
                reason="That is what you pay when you choose from left to right, each time the cheapest.",
            )
        ],
        hints=lambda _: (
            "There are only 2³ = 8 choices.",
            "Add three node costs and two edge costs for each.",
            "Faster: for each strategy of node 1 take the best of node 0, then the best of node 2. Then choose node 1.",
        ),
        code=lambda small: dedent(f"""\
            from itertools import product

            c = {[list(costs) for costs in small.nodes]}
            R01, R12 = {[[list(row) for row in matrix] for matrix in small.edges]}
            answer = min(
                c[0][i] + c[1][j] + c[2][k] + R01[i][j] + R12[j][k] for i, j, k in product(range(2), repeat=3)
            )
            """),
        premise="greedy is not optimal",
        holds=lambda small: (
            min(small.problem.evaluate(choices) for choices in product(range(2), repeat=3))
            == solve(small.problem).objective
            < small.problem.evaluate(greedy(small.problem))
        ),
    ),
    Exercise(
        id="05.2",
        title="How large is Eq. 1?",
        draw=lambda random: Sizes(strategies=tuple(random.randint(3, 12) for _ in range(5))),
        question=lambda sizes: (
            f"Five operators in a chain have {', '.join(map(str, sizes.strategies))} strategies. How many variables "
            "does Eq. 1 have, s and e together?"
        ),
        kind=lambda _: Number(tolerance=0.0),
        truth=lambda sizes: sizes.problem.variables,
        why=lambda sizes, truth: (
            f"{sum(sizes.strategies)} s, one for each strategy, and for each of the four edges one e for each pair: "
            f"{' + '.join(f'{a}·{b}' for a, b in pairwise(sizes.strategies))} = "
            f"{truth - sum(sizes.strategies)}. Together {truth}."
        ),
        mistakes=lambda sizes, truth: [
            Mistake(answer=sum(sizes.strategies), reason="Those are the s. There is an e for each pair on each edge."),
            Mistake(answer=truth - sum(sizes.strategies), reason="Those are the e. Each strategy has an s as well."),
        ],
        hints=lambda _: (
            "Two kinds of variables: which?",
            "s: one for each strategy of each node.",
            "e: for each edge the product of the two numbers of strategies.",
        ),
        code=lambda sizes: dedent(f"""\
            k = {list(sizes.strategies)}
            answer = sum(k) + sum(a * b for a, b in zip(k, k[1:]))
            """),
        premise="the library counts the same variables",
        holds=lambda sizes: sizes.problem.variables > sum(sizes.strategies),
    ),
    Exercise(
        id="05.3",
        title="How far the relaxation is off",
        draw=lambda random: Cycle(nodes=random.choice((3, 5, 7)), cost=random.randint(2, 9)),
        question=lambda cycle: (
            f"{cycle.nodes} nodes in a cycle have two strategies each, which cost nothing. Two neighbours that choose "
            f"alike pay {cycle.cost}. By how much is the optimum of the integer program above that of its LP "
            "relaxation?"
        ),
        kind=lambda _: Number(tolerance=0.0),
        truth=lambda cycle: round(cycle.gap(), 6),
        why=lambda cycle, truth: (
            f"With halves no neighbours are alike, and the relaxation costs 0. In whole choices the strategies would "
            f"have to alternate, which {cycle.nodes} nodes in a cycle cannot: one pair is alike and pays {truth:g}."
        ),
        mistakes=lambda cycle, _: [
            Mistake(answer=0, reason="That would be so on a chain, or on a cycle with an even number of nodes."),
            Mistake(
                answer=cycle.nodes * cycle.cost, reason="That is paid if all choose alike. All but one pair can differ."
            ),
        ],
        hints=lambda _: (
            "What does the relaxation pay if every node takes half of each strategy?",
            "How many neighbouring pairs must be alike if the strategies are whole?",
            "Let the strategies alternate around the cycle, and look at the last node.",
        ),
        code=lambda cycle: dedent(f"""\
            from itertools import product

            n = {cycle.nodes}
            whole = min(
                sum({cycle.cost} for v in range(n) if s[v] == s[(v + 1) % n]) for s in product((0, 1), repeat=n)
            )
            answer = whole - 0  # the relaxation costs 0: halves everywhere
            """),
        premise="the relaxation is fractional, and costs nothing",
        holds=lambda cycle: not relax(cycle.problem).whole and abs(relax(cycle.problem).objective) < 1e-9,
    ),
    Exercise(
        id="05.4",
        title="When data parallelism wins",
        draw=lambda random: Block(devices=random.choice((2, 4, 8)), tokens=1024 * random.randint(2, 12)),
        question=lambda block: (
            f"The MLP of the lesson with {block.tokens:,} tokens on {block.devices} A100 of one node. Which is the "
            "smallest B with which *rows, rows* is optimal?\n\n`MLP(cluster=…, tokens=…, num_microbatches=…).problem` "
            "makes the problem, and `solve(problem).choices` is (0, 0) for rows, rows."
        ),
        kind=lambda _: Number(tolerance=0.0),
        truth=_least_data_parallel,
        why=lambda block, truth: (
            f"With B = {truth} rows, rows takes {units.seconds(_rows_seconds(block, truth))} a microbatch, with B = "
            f"{truth - 1} {units.seconds(_rows_seconds(block, truth - 1))}; columns, inner, the best of the others, "
            f"takes {units.seconds(block.at(truth).problem.evaluate((1, 2)))} whatever B is. The gradients are summed "
            "once an iteration: their share of a microbatch is 1 / B."
        ),
        mistakes=lambda _block, truth: [
            Mistake(answer=truth - 1, reason="With this B the gradients still cost more than they save."),
            Mistake(answer=2 * truth, reason="It is optimal with this B, and already with a smaller one."),
        ],
        hints=lambda _: (
            "Which part of the cost of rows, rows depends on B?",
            "Try B = 1, 2, 4, 8, … and look at `solve(problem).choices`; then look between the last two.",
            "`MLP` is in `alpa_explore.course.examples`, `solve` in `alpa_explore.intra_op.solve`. Loop over B.",
        ),
        code=lambda block: dedent(f"""\
            from alpa_explore.course.examples import MLP
            from alpa_explore.intra_op.solve import solve

            def choices(b):
                mlp = MLP(cluster="1x{block.devices}:a100@alpa", tokens={block.tokens}, num_microbatches=b)
                return solve(mlp.problem).choices


            answer = next(b for b in range(1, {_MOST_MICROBATCHES}) if choices(b) == (0, 0))
            """),
        premise="with one microbatch less tensor parallelism is optimal, as with B = 1",
        holds=lambda block: (
            solve(block.at(1).problem).choices == (1, 2)
            and solve(block.at(_least_data_parallel(block) - 1).problem).choices == (1, 2)
            and solve(block.at(2 * _least_data_parallel(block)).problem).choices == (0, 0)
        ),
    ),
)
"""In the order of their ids."""
