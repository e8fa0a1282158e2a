"""The ILP of `enumerated_ilp`, passed to HiGHS as one sparse matrix, without the objects of PuLP (which builds about
180,000 variables a second).

Columns: the s variables node by node, then the e variables edge by edge (row-major). Rows: one per node (Σ s = 1), then
for each edge one per legal strategy of a (Σ_j e − s = 0) and one per legal strategy of b. An e column has two entries;
an s column one, and one more for every edge at its node.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import highspy
import numpy as np

from alpa_explore.errors import SolverError
from alpa_explore.intra_op.ilp import tuning
from alpa_explore.intra_op.ilp.ilp_answer import conclude, cost_scale, trivial
from alpa_explore.intra_op.ilp.memory_rows import memory_rows
from alpa_explore.intra_op.ilp.quiet_highs import quiet_highs
from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.intra_op.problem.restriction import legality
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, Choices, ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution
from alpa_explore.numerics.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Program:
    """min costs · x, rows of `matrix` (by column: starts, rows, values) equal to `right`; x in [0, 1]."""

    costs: Floats
    num_binaries: int
    starts: Ints
    rows: Ints
    values: Floats
    right: Floats
    legal: tuple[Ints, ...]
    """For each node the strategies that have an s column, in order."""


def solve_highs_direct(
    problem: ShardingProblem,
    *,
    time_limit_seconds: float | None = None,
    gap: float = 0.0,
    memory: MemoryLimit | None = None,
    start: Choices | None = None,
) -> ShardingSolution:
    """Solve `problem` with HiGHS to within a relative `gap`, under a limit on `memory`, beginning at the choice
    `start`.

    Raises SolverError when HiGHS stops, or when a time limit passes before any legal choice was found.
    """
    started = time.perf_counter()
    if (answer := trivial(problem, "highs-direct", started)) is not None:
        return answer
    scale = cost_scale(problem)
    program = _program(problem, scale)
    highs = quiet_highs()
    highs.setOptionValue("mip_rel_gap", gap)
    highs.setOptionValue("mip_abs_gap", 0.0)
    if time_limit_seconds is not None:
        highs.setOptionValue(
            "time_limit", max(tuning.MIN_TIME_LIMIT_SECONDS, time_limit_seconds - (time.perf_counter() - started))
        )
    highs.passModel(_model(program))
    if memory is not None:
        _limit_memory(highs, program, memory)
    if start is not None:
        chosen = [np.equal(k, c).astype(np.float64) for k, c in zip(program.legal, start, strict=True)]
        highs.setSolution(program.num_binaries, np.arange(program.num_binaries, dtype=np.int32), np.concatenate(chosen))
    highs.run()
    status = highs.getModelStatus()
    info = highs.getInfo()
    statuses = highspy.HighsModelStatus
    finished_statuses = (statuses.kOptimal, statuses.kInfeasible, statuses.kUnboundedOrInfeasible)
    if status not in (*finished_statuses, statuses.kTimeLimit, statuses.kInterrupt):
        raise SolverError(
            "HiGHS stopped", found=highs.modelStatusToString(status), remedy="Use the 'auto' or 'cbc' solver."
        )
    choices = None
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        choices = _chosen(program, np.asarray(highs.getSolution().col_value))
    return conclude(
        problem,
        solver="highs-direct",
        started=started,
        finished=status in finished_statuses
        and (choices is None or gap == 0.0 or info.mip_gap <= tuning.HIGHS_PROVEN_GAP),
        choices=choices,
        bound=info.mip_dual_bound / scale,
        variables=len(program.costs),
        constraints=len(program.right),
        improve_by_descent=memory is None,
    )


def _program(problem: ShardingProblem, scale: float) -> _Program:
    legal = tuple(np.flatnonzero(costs < FORBIDDEN) for costs in problem.node_costs)
    counts = [len(k) for k in legal]
    first_s = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    costs = [vector[k] for vector, k in zip(problem.node_costs, legal, strict=True)]
    columns = [np.arange(first_s[-1])]
    rows = [np.repeat(np.arange(len(legal)), counts)]
    values = [np.ones(first_s[-1])]
    next_column, next_row = int(first_s[-1]), len(legal)
    for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        submatrix = matrix[np.ix_(legal[a], legal[b])]
        i, j = np.nonzero(submatrix < FORBIDDEN)
        costs.append(submatrix[i, j])
        pairs = np.arange(next_column, next_column + len(i))
        row_a, row_b = next_row, next_row + counts[a]
        ends = (first_s[a] + np.arange(counts[a]), first_s[b] + np.arange(counts[b]))
        columns += [pairs, pairs, *ends]
        rows += [row_a + i, row_b + j, row_a + np.arange(counts[a]), row_b + np.arange(counts[b])]
        values += [np.ones(2 * len(i)), -np.ones(counts[a] + counts[b])]
        next_column, next_row = next_column + len(i), row_b + counts[b]
    column = np.concatenate(columns)
    by_column = np.argsort(column, kind="stable")
    right = np.zeros(next_row)
    right[: len(legal)] = 1.0
    return _Program(
        costs=np.concatenate([*costs, np.zeros(0)]) * scale,
        num_binaries=int(first_s[-1]),
        starts=np.concatenate([[0], np.cumsum(np.bincount(column, minlength=next_column))]),
        rows=np.concatenate(rows)[by_column],
        values=np.concatenate(values)[by_column],
        right=right,
        legal=legal,
    )


def _model(program: _Program) -> highspy.HighsLp:
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(program.costs), len(program.right)
    lp.col_cost_ = program.costs
    lp.col_lower_, lp.col_upper_ = np.zeros(lp.num_col_), np.ones(lp.num_col_)
    lp.row_lower_ = lp.row_upper_ = program.right
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = lp.num_col_, lp.num_row_
    lp.a_matrix_.start_ = program.starts.astype(np.int32)
    lp.a_matrix_.index_ = program.rows.astype(np.int32)
    lp.a_matrix_.value_ = program.values
    kinds = highspy.HighsVarType
    lp.integrality_ = [kinds.kInteger] * program.num_binaries + [kinds.kContinuous] * (
        lp.num_col_ - program.num_binaries
    )
    return lp


def least_limit(problem: ShardingProblem, memory: MemoryLimit, time_limit_seconds: float) -> tuple[float, bool]:
    """The least memory limit under which there is a choice, in bytes, and whether it is exact; at the time limit it is
    a lower bound. Every node must have a legal strategy."""
    least = memory.least_peak()
    program = _program(legality(problem), 1.0)
    highs = quiet_highs()
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("time_limit", time_limit_seconds)
    highs.passModel(_model(program))
    excess = highs.getNumCol()
    highs.addCol(1.0, 0.0, highspy.kHighsInf, 0, np.zeros(0, dtype=np.int32), np.zeros(0))
    unit = _limit_memory(highs, program, replace(memory, limit=least), excess)
    highs.run()
    exact = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return least + max(0.0, highs.getInfo().mip_dual_bound) * unit, exact


def _limit_memory(highs: highspy.Highs, program: _Program, memory: MemoryLimit, excess: int | None = None) -> float:
    """A column and a row for each running sum of the memory (`memory_rows`); returns their unit in bytes.

    Where the column `excess` is given, the sums may exceed their room by its value.
    """
    first = np.concatenate([[0], np.cumsum([len(k) for k in program.legal])])
    column, unit = -1, 1.0
    for row in memory_rows(memory, program.legal):
        unit = row.unit
        terms = {int(first[v] + k): float(weight) for (v, k), weight in row.weights.items()}
        if column >= 0:
            terms[column] = -1.0
        column = highs.getNumCol()
        terms[column] = 1.0
        highs.addVar(-highspy.kHighsInf, row.room if excess is None else highspy.kHighsInf)
        highs.addRow(0.0, 0.0, len(terms), np.array(list(terms), dtype=np.int32), np.array(list(terms.values())))
        if excess is not None:
            columns = np.array([column, excess], dtype=np.int32)
            highs.addRow(-highspy.kHighsInf, row.room, 2, columns, np.array([1.0, -1.0]))
    return unit


def _chosen(program: _Program, solution: Floats) -> Choices:
    choices, start = [], 0
    for legal in program.legal:
        choices.append(int(legal[solution[start : start + len(legal)].argmax()]))
        start += len(legal)
    return tuple(choices)
