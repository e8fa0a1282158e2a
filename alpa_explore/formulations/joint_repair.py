"""Joint repair: options chosen axis by axis, made legal and improved under the exact costs.

- `keep_one_axis`: one axis keeps its options, the others are chosen again, jointly and exactly; once for each axis, and
  the cheapest result is taken. This separates two axes that both split the batch.
- `polish`: coordinate descent over nodes, then over axes: each axis in turn is chosen again at all nodes at once, given
  the options of the others, until nothing improves.

Each step is a sharding problem restricted to the strategies that agree with the fixed options, O(d + 1) per node where
one axis is free, solved by the default exact solver.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpa_explore.errors import SolverError
from alpa_explore.formulations import tuning
from alpa_explore.intra_op.bounds.messages import descend, is_legal
from alpa_explore.intra_op.problem.sharding_problem import Choices, ShardingProblem, restricted, unrestricted_choices
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.axis_options import NodeOptions, nearest_strategies
from alpa_explore.numerics.arrays import Ints


def repair(problem: ShardingProblem, nodes: Sequence[NodeOptions], requested: Sequence[tuple[int, ...]]) -> Choices:
    """A legal, polished choice from the option `requested` on each axis at each node (-1: no option of the node).

    Raises SolverError where no legal choice is found.
    """
    nearest, _ = nearest_strategies(problem, nodes, requested)
    # A forbidden entry costs more than any legal choice, so the cheapest start is legal where one is.
    starts = [descend(problem, nearest), *keep_one_axis(problem, nodes, requested)]
    return polish(problem, nodes, min(starts, key=problem.evaluate))


def keep_one_axis(
    problem: ShardingProblem, nodes: Sequence[NodeOptions], requested: Sequence[tuple[int, ...]]
) -> list[Choices]:
    """For each axis the best choice in which that axis has the `requested` options; axes without one are left out."""
    candidates = []
    for axis in range(nodes[0].labels.shape[1] if nodes else 0):
        kept = [np.flatnonzero(node.labels[:, axis] == w[axis]) for node, w in zip(nodes, requested, strict=True)]
        allowed = [k if len(k) else np.arange(len(node.labels)) for k, node in zip(kept, nodes, strict=True)]
        choices = _best_among(problem, allowed)
        if choices is not None:
            candidates.append(choices)
    return candidates


def polish(problem: ShardingProblem, nodes: Sequence[NodeOptions], choices: Choices) -> Choices:
    """Descend over nodes, then over axes until nothing improves. The result never costs more than `choices`.

    Raises SolverError where no legal choice is found.
    """
    best = min((choices, descend(problem, choices)), key=problem.evaluate)
    if not is_legal(problem, best):  # pending sums without a producer, far from any legal choice: start again
        best = min((best, descend(problem)), key=problem.evaluate)
    for _ in range(tuning.POLISH_ROUNDS):
        before = problem.evaluate(best)
        for axis in range(nodes[0].labels.shape[1] if nodes else 0):
            kept = []
            for node, choice in zip(nodes, best, strict=True):
                others = np.delete(node.labels, axis, axis=1)
                kept.append(np.flatnonzero((others == others[choice]).all(axis=1)))
            candidate = _best_among(problem, kept)
            if candidate is not None and problem.evaluate(candidate) < problem.evaluate(best):
                best = candidate
        if problem.evaluate(best) >= before * (1 - tuning.POLISH_GAIN):
            break
    if not is_legal(problem, best):
        raise SolverError(
            "No legal choice was found near the options chosen axis by axis",
            found=f"{len(nodes)} nodes",
            remedy="Use the 'auto' solver, which decides all axes together.",
        )
    return best


def _best_among(problem: ShardingProblem, kept: Sequence[Ints]) -> Choices | None:
    """The best choice with only the strategies `kept[v]` of each node v; None when there is none."""
    solution = solve(restricted(problem, kept))
    if solution.status is Status.INFEASIBLE:
        return None
    return unrestricted_choices(kept, solution.choices)
