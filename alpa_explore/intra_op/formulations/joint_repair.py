"""Joint repair: what was decided axis by axis, made legal and improved under the exact costs.

- `keep_one_axis`: one axis keeps what was decided for it, the others are chosen again, jointly and exactly; once for
  each axis, and the cheapest is taken. So two axes that both cut the batch up are told apart.
- `polish`: coordinate descent over nodes, then over axes: each axis in turn is chosen again at all nodes at once, given
  the options of the others, until nothing improves.

Each step is a sharding problem restricted to the strategies that agree with what is kept: O(d + 1) a node where one
axis is free, solved by the default exact solver.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpa_explore.errors import SolverError
from alpa_explore.intra_op.bounds.descend import descend, is_legal
from alpa_explore.intra_op.formulations.axis_options import NodeOptions, nearest_strategies
from alpa_explore.intra_op.problem.restriction import restricted
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve import solve
from alpa_explore.numerics.arrays import Ints

ROUNDS = 10
"""Sweeps over the axes at most; two or three are what it takes."""
STILL = 1e-9
"""Relative gain of a sweep below which it has come to rest."""
Choices = tuple[int, ...]


def repair(problem: ShardingProblem, nodes: Sequence[NodeOptions], wanted: Sequence[tuple[int, ...]]) -> Choices:
    """A legal, polished choice from the option `wanted` on each axis at each node (-1: none that exists there).

    Raises SolverError where no legal choice is found.
    """
    nearest, _ = nearest_strategies(problem, nodes, wanted)
    # A forbidden entry costs more than any legal choice, so the cheapest start is legal where one is.
    starts = [descend(problem, nearest), *keep_one_axis(problem, nodes, wanted)]
    return polish(problem, nodes, min(starts, key=problem.evaluate))


def keep_one_axis(
    problem: ShardingProblem, nodes: Sequence[NodeOptions], wanted: Sequence[tuple[int, ...]]
) -> list[Choices]:
    """For each axis the best choice among those that give that axis what is `wanted`; none where that is forbidden."""
    found = []
    for axis in range(nodes[0].labels.shape[1] if nodes else 0):
        kept = [np.flatnonzero(node.labels[:, axis] == w[axis]) for node, w in zip(nodes, wanted, strict=True)]
        everything = [k if len(k) else np.arange(len(node.labels)) for k, node in zip(kept, nodes, strict=True)]
        choices = _best_among(problem, everything)
        if choices is not None:
            found.append(choices)
    return found


def polish(problem: ShardingProblem, nodes: Sequence[NodeOptions], choices: Choices) -> Choices:
    """Descend over nodes, then over axes until nothing improves. Never dearer than `choices`.

    Raises SolverError where no legal choice is found.
    """
    best = min((choices, descend(problem, choices)), key=problem.evaluate)
    if not is_legal(problem, best):  # pending sums that nobody makes, far from any legal choice: begin anew
        best = min((best, descend(problem)), key=problem.evaluate)
    for _ in range(ROUNDS):
        before = problem.evaluate(best)
        for axis in range(nodes[0].labels.shape[1] if nodes else 0):
            kept = []
            for node, choice in zip(nodes, best, strict=True):
                others = np.delete(node.labels, axis, axis=1)
                kept.append(np.flatnonzero((others == others[choice]).all(axis=1)))
            again = _best_among(problem, kept)
            if again is not None and problem.evaluate(again) < problem.evaluate(best):
                best = again
        if problem.evaluate(best) >= before * (1 - STILL):
            break
    if not is_legal(problem, best):
        raise SolverError(
            "No legal choice was found near the one that was decided axis by axis",
            found=f"{len(nodes)} nodes",
            remedy="Use the 'auto' solver, which decides all axes together.",
        )
    return best


def _best_among(problem: ShardingProblem, kept: Sequence[Ints]) -> Choices | None:
    answer = solve(restricted(problem, tuple(kept)))
    if answer.status is Status.INFEASIBLE:
        return None
    return tuple(int(k[c]) for k, c in zip(kept, answer.choices, strict=True))
