"""Eq. 1 and a memory limit as a cost function network, solved by toulbar2 (extra `toulbar2`, package pytoulbar2).

toulbar2 is a branch-and-bound solver with soft arc consistency; on large problems it finds optima where HiGHS finds
nothing. Its costs are whole numbers, so others are scaled and rounded, and its answer is priced anew like every other.
It runs in this process and cannot be interrupted but by its own time limit.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from alpa_explore.errors import SolverError
from alpa_explore.intra_op.ilp.ilp_answer import conclude, cost_scale, trivial
from alpa_explore.intra_op.ilp.memory_rows import fullest_times
from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution
from alpa_explore.numerics.arrays import Floats

DIGITS = 1e6
"""Costs that are not whole numbers are multiplied so that the optimum is near 1e3 × this."""
LARGEST = 2.0**52
"""Whole costs above this are scaled down: they must stay exact, and so must their sum."""
_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="toulbar2")
"""toulbar2 keeps its state in globals and in the thread that imported it: one solve at a time, and always here."""
ROOM = 1e9
"""Bytes are counted in such a part of the limit."""


def solve_toulbar2(
    problem: ShardingProblem,
    *,
    time_limit_seconds: float | None = None,
    gap: float = 0.0,
    memory: MemoryLimit | None = None,
) -> ShardingSolution:
    """Solve `problem` with toulbar2, to optimality: a `gap` is not made use of."""
    started = time.perf_counter()
    if (answer := trivial(problem, "toulbar2", started)) is not None:
        return answer
    scale = _scale(problem)
    top = _top(problem, scale)
    found, dual = _THREAD.submit(_run, problem, memory, scale, top, time_limit_seconds).result()
    finished = time_limit_seconds is None or time.perf_counter() - started < time_limit_seconds
    choices = tuple(int(k) for k in found[0]) if found else None
    if choices is not None and memory is not None and not memory.allows(choices):
        raise SolverError(
            "toulbar2 gave an answer that does not fit",
            found=f"{memory.peak(choices):.6g} bytes held where {memory.limit:.6g} are allowed",
            remedy="Use the 'auto' solver, and report the problem.",
        )
    bound = problem.evaluate(choices) if finished and choices is not None else dual / scale
    return conclude(
        problem,
        solver="toulbar2",
        started=started,
        finished=finished,
        choices=choices,
        bound=bound,
        variables=len(problem.node_costs),
        constraints=len(problem.edges),
        descending=memory is None,
    )


def _run(
    problem: ShardingProblem, memory: MemoryLimit | None, scale: float, top: int, time_limit_seconds: float | None
) -> tuple[Any, float]:
    """(what Solve returned, the dual bound)."""
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
    parts = [*problem.node_costs, *problem.edge_costs]
    whole = all(bool((p[p < FORBIDDEN] % 1 == 0).all()) for p in parts)
    total = sum(float(p[p < FORBIDDEN].max(initial=0.0)) for p in parts)
    return 1.0 if whole and total < LARGEST else cost_scale(problem) * DIGITS


def _top(problem: ShardingProblem, scale: float) -> int:
    """More than any legal choice costs: what a forbidden entry costs."""
    parts = [*problem.node_costs, *problem.edge_costs]
    total = sum(float(p[p < FORBIDDEN].max(initial=0.0)) for p in parts) * scale
    return int(min(total, LARGEST)) + len(parts) + 1


def _whole(costs: Floats, scale: float, top: int) -> list[int]:
    return [int(c) for c in np.where(costs >= FORBIDDEN, top, np.minimum(np.rint(costs * scale), top))]


def _rows(memory: MemoryLimit) -> list[tuple[list[tuple[int, int, int]], int]]:
    """For each time at which the most is alive: ((variable, value, units), …) and the units that fit.

    Usage is rounded up: no answer that overflows passes, and one that fits to the last unit may be missed.
    """
    unit = max(memory.limit / ROOM, 1.0)
    usage = [item.usage for item in memory.items]
    rows = []
    for t in fullest_times(memory, {item.start for item in memory.items}):
        terms: dict[tuple[int, int], int] = {}
        for item, amounts in zip(memory.items, usage, strict=True):
            if item.start <= t < item.end:
                for k, amount in enumerate(amounts):
                    terms[item.node, k] = terms.get((item.node, k), 0) + math.ceil(amount / unit)
        room = math.floor((memory.limit - memory.taken[t]) / unit)
        rows.append(([(v, k, units) for (v, k), units in terms.items() if units], room))
    return [row for row in rows if row[0]]
