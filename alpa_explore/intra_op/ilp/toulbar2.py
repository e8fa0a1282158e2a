"""Eq. 1 and a memory limit as a cost function network, solved by toulbar2 (extra `toulbar2`, package pytoulbar2).

toulbar2 is a branch-and-bound solver with soft arc consistency; on large problems it finds optima where HiGHS finds
nothing. Its costs are whole numbers: others are scaled and rounded, and the objective is computed again from the
problem as for every solver. It runs in this process and can only be interrupted by its own time limit.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from alpa_explore.errors import SolverError
from alpa_explore.intra_op.ilp import tuning
from alpa_explore.intra_op.ilp.ilp_answer import conclude, cost_scale, trivial
from alpa_explore.intra_op.ilp.memory_rows import fullest_times
from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution
from alpa_explore.numerics.arrays import Floats

_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="toulbar2")
"""toulbar2 keeps state in globals and in the thread that imported it: one solve at a time, always in this thread."""


def solve_toulbar2(
    problem: ShardingProblem,
    *,
    time_limit_seconds: float | None = None,
    gap: float = 0.0,
    memory: MemoryLimit | None = None,
) -> ShardingSolution:
    """Solve `problem` to optimality with toulbar2; `gap` is accepted and ignored.

    Raises SolverError when toulbar2 is not installed or its answer violates the limit.
    """
    started = time.perf_counter()
    if (solution := trivial(problem, "toulbar2", started)) is not None:
        return solution
    scale = _scale(problem)
    top = _top(problem, scale)
    answer, dual_bound = _THREAD.submit(_run, problem, memory, scale, top, time_limit_seconds).result()
    finished = time_limit_seconds is None or time.perf_counter() - started < time_limit_seconds
    choices = tuple(int(k) for k in answer[0]) if answer else None
    if choices is not None and memory is not None and not memory.allows(choices):
        raise SolverError(
            "toulbar2 gave an answer that exceeds the memory limit",
            found=f"{memory.peak(choices):.6g} bytes held where {memory.limit:.6g} are allowed",
            remedy="Use the 'auto' solver, and report the problem.",
        )
    bound = problem.evaluate(choices) if finished and choices is not None else dual_bound / scale
    return conclude(
        problem,
        solver="toulbar2",
        started=started,
        finished=finished,
        choices=choices,
        bound=bound,
        variables=len(problem.node_costs),
        constraints=len(problem.edges),
        improve_by_descent=memory is None,
    )


def _run(
    problem: ShardingProblem, memory: MemoryLimit | None, scale: float, top: int, time_limit_seconds: float | None
) -> tuple[Any, float]:
    """(the return value of toulbar2's Solve, the scaled dual bound)."""
    try:
        import pytoulbar2
    except ImportError:
        raise SolverError(
            "toulbar2 is not installed",
            found="no module pytoulbar2",
            remedy="pip install 'alpa-explore[toulbar2]', or use the 'auto' solver.",
        ) from None
    network = pytoulbar2.CFN(ubinit=top)
    for v, costs in enumerate(problem.node_costs):
        network.AddVariable(f"s{v}", range(len(costs)))
        network.AddFunction([v], _whole(costs, scale, top))
    for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        network.AddFunction([a, b], _whole(matrix.ravel(), scale, top))
    for constraint, room in _rows(memory) if memory is not None else []:
        network.AddGeneralizedLinearConstraint(constraint, "<=", room)
    limit = 0 if time_limit_seconds is None else max(1, math.ceil(time_limit_seconds))
    return network.Solve(timeLimit=limit), float(network.GetDDualBound())


def _scale(problem: ShardingProblem) -> float:
    arrays = [*problem.node_costs, *problem.edge_costs]
    whole = all(bool((a[a < FORBIDDEN] % 1 == 0).all()) for a in arrays)
    exact = whole and problem.largest_legal_cost() < tuning.TOULBAR2_LARGEST_COST
    return 1.0 if exact else cost_scale(problem) * tuning.TOULBAR2_COST_UNITS


def _top(problem: ShardingProblem, scale: float) -> int:
    """The cost of a forbidden entry: more than any legal choice costs."""
    total = problem.largest_legal_cost() * scale
    return int(min(total, tuning.TOULBAR2_LARGEST_COST)) + len(problem.node_costs) + len(problem.edge_costs) + 1


def _whole(costs: Floats, scale: float, top: int) -> list[int]:
    return [int(c) for c in np.where(costs >= FORBIDDEN, top, np.minimum(np.rint(costs * scale), top))]


def _rows(memory: MemoryLimit) -> list[tuple[list[tuple[int, int, int]], int]]:
    """For each of the fullest times: ((variable, value, units), …) and the units that fit.

    Usage is rounded up: an answer that overflows never passes, and one that fits to the last unit may be missed.
    """
    unit = max(memory.limit / tuning.TOULBAR2_MEMORY_UNITS, 1.0)
    usage = [item.usage for item in memory.items]
    rows = []
    for t in fullest_times(memory, {item.start for item in memory.items}):
        terms: dict[tuple[int, int], int] = {}
        for item, amounts in zip(memory.items, usage, strict=True):
            if item.start <= t < item.end:
                for k, amount in enumerate(amounts):
                    terms[item.node, k] = terms.get((item.node, k), 0) + math.ceil(amount / unit)
        room = math.floor((memory.limit - memory.fixed_bytes[t]) / unit)
        rows.append(([(v, k, units) for (v, k), units in terms.items() if units], room))
    return [row for row in rows if row[0]]
