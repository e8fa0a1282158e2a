"""Eq. 1 of the paper (Alpa, arXiv 2201.12023, section 4.2) as an ILP in PuLP: the reference formulation.

One binary s_v[k] for each legal strategy k of each node v; for each edge (v, u) one e_vu[i, j] for each legal pair,
the linearised product s_v[i] · s_u[j]:

    minimise    Σ_v Σ_k c_v[k] · s_v[k]  +  Σ_(v,u) Σ_ij R_vu[i, j] · e_vu[i, j]         `_objective`
    subject to  Σ_k s_v[k] = 1                           for every node v                 `_one_strategy_a_node`
                Σ_j e_vu[i, j] = s_v[i]                  for every edge, every i          `_rows_agree`
                Σ_i e_vu[i, j] = s_u[j]                  for every edge, every j          `_columns_agree`
                s ∈ {0, 1},  0 ≤ e ≤ 1 continuous                                         `_strategies`, `_pairs`

The links are equalities and e is continuous: with s integral they force e = s · s, and the relaxation is tighter than
with Alpa's Σ_j e ≤ s (measured 5 to 100 times faster). A forbidden entry (≥ 1e18) has no variable at all. Costs are
scaled so that the optimum is near 1e3, the absolute gap is 0, and the objective is computed again from the problem.

`alpa_form` writes the links as Alpa's own code does, for comparison: e binary, Σ_j e ≤ s, Σ_i e ≤ s and

                Σ_ij e_vu[i, j] = 1                  for every edge (v, u)              `_one_pair_an_edge`
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import highspy
import numpy as np
import pulp

from alpa_explore.errors import SolverError
from alpa_explore.intra_op.bounds.messages import descend, is_legal, simple_bound
from alpa_explore.intra_op.ilp import tuning
from alpa_explore.intra_op.ilp.ilp_answer import Answer, checked, cost_scale, infeasible
from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, Choices, ShardingProblem, legality
from alpa_explore.intra_op.problem.solution import ShardingSolution
from alpa_explore.intra_op.problem.timeline import timeline
from alpa_explore.numerics.arrays import Floats

Strategies = list[dict[int, pulp.LpVariable]]
"""For each node: strategy → s variable."""
Pairs = list[dict[tuple[int, int], pulp.LpVariable]]
"""For each edge: (strategy of a, strategy of b) → e variable."""


def solve_enumerated(
    problem: ShardingProblem,
    *,
    backend: str = "highs",
    time_limit_seconds: float | None = None,
    gap: float = 0.0,
    alpa_form: bool = False,
    memory: MemoryLimit | None = None,
    start: Choices | None = None,
) -> ShardingSolution:
    """Solve `problem` with PuLP and `backend` ("highs" or "cbc") to within a relative `gap`, under a limit on `memory`;
    HiGHS begins at the choice `start`.

    Raises SolverError when CBC stops, or when a time limit passes before any legal choice was found.
    """
    started = time.perf_counter()
    if any(not (costs < FORBIDDEN).any() for costs in problem.node_costs):
        return infeasible(solver=backend, started=started)
    if not problem.node_costs:
        return checked(problem, Answer(choices=(), bound=0.0, finished=True), solver=backend, started=started)
    scale = cost_scale(problem)
    pair_kind, sense = (pulp.LpBinary, pulp.LpConstraintLE) if alpa_form else (pulp.LpContinuous, pulp.LpConstraintEQ)
    model, s, e = _model(problem, scale, pair_kind=pair_kind, sense=sense)
    for constraint in _one_pair_an_edge(e) if alpa_form else []:
        model += constraint
    if memory is not None:
        _limit_memory(model, memory, s)
    build_seconds = time.perf_counter() - started
    remaining = None
    if time_limit_seconds is not None:
        remaining = max(tuning.MIN_TIME_LIMIT_SECONDS, time_limit_seconds - (time.perf_counter() - started))
    if backend == "cbc":
        finished, has_choice, bound = _run_cbc(model, remaining, gap)
    else:
        begin = {x: k == c for node, c in zip(s, start or (), strict=False) for k, x in node.items()}
        finished, has_choice, bound = _run_highs(model, remaining, gap, begin)
    variables, constraints = sum(map(len, s)) + sum(map(len, e)), model.numConstraints()
    if finished and not has_choice:
        return infeasible(solver=backend, started=started, variables=variables, constraints=constraints)
    answer = Answer(
        choices=_chosen(s) if has_choice else (),
        bound=bound / scale,
        finished=finished,
        variables=variables,
        constraints=constraints,
    )
    if not finished:
        answer = _interrupted(problem, answer, backend, descends=memory is None)
    return checked(problem, answer, solver=backend, started=started, build_seconds=build_seconds)


def _interrupted(problem: ShardingProblem, answer: Answer, solver: str, *, descends: bool) -> Answer:
    """An answer at the time limit: the choice is often poor, and where memory is no matter (`descends`) descent
    improves it, or finds one on its own. SolverError where there is no legal choice."""
    found = [answer.choices] if answer.choices else []
    if descends:
        found = [c for c in (descend(problem, start) for start in (*found, None)) if is_legal(problem, c)]
    if not found:
        raise SolverError(
            f"{solver} found no legal choice",
            found=f"time limit reached on {len(problem.node_costs)} nodes, {answer.variables} variables",
            remedy="Give it a longer time limit, or use the 'auto' solver, which reduces the problem first.",
        )
    best = min(found, key=problem.evaluate)
    return replace(answer, choices=best, bound=min(problem.evaluate(best), max(answer.bound, simple_bound(problem))))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relaxation:
    """An optimum of the LP relaxation: strategies may be chosen in part."""

    objective: float
    """A lower bound on the cost of every choice; the optimum where the nodes form a tree."""
    node_shares: tuple[Floats, ...]
    """s: for each node the share of each strategy."""
    edge_shares: tuple[Floats, ...]
    """e: for each edge the share of each pair, shape [strategies of a, strategies of b]."""

    @property
    def whole(self) -> bool:
        """Whether every strategy is chosen whole or not at all."""
        return all(bool(np.isclose(shares, shares.round()).all()) for shares in self.node_shares)


def relax(problem: ShardingProblem) -> Relaxation:
    """The LP relaxation of Eq. 1: the same program with 0 ≤ s ≤ 1. SolverError where it has no solution."""
    scale = cost_scale(problem)
    model, s, e = _model(problem, scale, strategy_kind=pulp.LpContinuous)
    finished, has_solution, _ = _run_highs(model, None)
    if not (finished and has_solution):
        raise SolverError(
            "The relaxation has no solution", found=problem.name, remedy="Allow a legal strategy for every node."
        )
    nodes = [np.zeros(len(costs)) for costs in problem.node_costs]
    edges = [np.zeros(costs.shape) for costs in problem.edge_costs]
    for node, of_strategy in zip(nodes, s, strict=True):
        for k, variable in of_strategy.items():
            node[k] = variable.varValue
    for edge, of_pair in zip(edges, e, strict=True):
        for pair, variable in of_pair.items():
            edge[pair] = variable.varValue
    return Relaxation(
        objective=float(pulp.value(model.objective)) / scale, node_shares=tuple(nodes), edge_shares=tuple(edges)
    )


def least_limit(problem: ShardingProblem, memory: MemoryLimit, time_limit_seconds: float) -> tuple[float, bool]:
    """The least memory limit under which there is a choice, in bytes, and whether it is exact; at the time limit it is
    a lower bound. Every node must have a legal strategy."""
    least = memory.least_peak()
    model, s, _ = _model(legality(problem), 1.0)
    excess = model.add_variable("excess", 0)
    model.setObjective(excess)
    unit = _limit_memory(model, replace(memory, limit=least), s, excess)
    finished, _, bound = _run_highs(model, time_limit_seconds)
    return least + max(0.0, bound) * unit, finished


def _model(
    problem: ShardingProblem,
    scale: float,
    *,
    strategy_kind: str = pulp.LpBinary,
    pair_kind: str = pulp.LpContinuous,
    sense: int = pulp.LpConstraintEQ,
) -> tuple[pulp.LpProblem, Strategies, Pairs]:
    """Eq. 1 without the rows that only one formulation has."""
    model = pulp.LpProblem("enumerated", pulp.LpMinimize)
    s = _strategies(model, problem, strategy_kind)
    e = _pairs(model, problem, pair_kind)
    model += _objective(problem, s, e, scale)
    for constraint in (
        *_one_strategy_a_node(s),
        *_rows_agree(problem, s, e, sense),
        *_columns_agree(problem, s, e, sense),
    ):
        model += constraint
    return model, s, e


def _strategies(model: pulp.LpProblem, problem: ShardingProblem, kind: str) -> Strategies:
    return [
        {int(k): model.add_variable(f"s_{v}_{k}", 0, 1, kind) for k in np.flatnonzero(costs < FORBIDDEN)}
        for v, costs in enumerate(problem.node_costs)
    ]


def _pairs(model: pulp.LpProblem, problem: ShardingProblem, kind: str) -> Pairs:
    legal = [costs < FORBIDDEN for costs in problem.node_costs]
    return [
        {
            (i, j): model.add_variable(f"e_{edge}_{i}_{j}", 0, 1, kind)
            for i, j in np.argwhere((costs < FORBIDDEN) & np.outer(legal[a], legal[b])).tolist()
        }
        for edge, ((a, b), costs) in enumerate(zip(problem.edges, problem.edge_costs, strict=True))
    ]


def _objective(problem: ShardingProblem, s: Strategies, e: Pairs, scale: float) -> pulp.LpAffineExpression:
    terms = [(x, float(problem.node_costs[v][k]) * scale) for v, node in enumerate(s) for k, x in node.items()]
    terms += [(x, float(problem.edge_costs[i][pair]) * scale) for i, edge in enumerate(e) for pair, x in edge.items()]
    return pulp.LpAffineExpression(terms)


def _one_strategy_a_node(s: Strategies) -> list[pulp.LpConstraint]:
    return [pulp.lpSum(node.values()) == 1 for node in s]


def _rows_agree(problem: ShardingProblem, s: Strategies, e: Pairs, sense: int) -> list[pulp.LpConstraint]:
    return _agree([a for a, _ in problem.edges], 0, s, e, sense)


def _columns_agree(problem: ShardingProblem, s: Strategies, e: Pairs, sense: int) -> list[pulp.LpConstraint]:
    return _agree([b for _, b in problem.edges], 1, s, e, sense)


def _agree(ends: list[int], side: int, s: Strategies, e: Pairs, sense: int) -> list[pulp.LpConstraint]:
    """For each edge and each strategy of the node at end `side`: the e of the pairs with that strategy add up to its
    s."""
    constraints = []
    for v, edge in zip(ends, e, strict=True):
        members: dict[int, list[pulp.LpVariable]] = {k: [] for k in s[v]}
        for pair, x in edge.items():
            members[pair[side]].append(x)
        for k, pairs in members.items():
            difference = pulp.LpAffineExpression([(x, 1) for x in pairs] + [(s[v][k], -1)])
            constraints.append(difference <= 0 if sense == pulp.LpConstraintLE else difference == 0)
    return constraints


def _one_pair_an_edge(e: Pairs) -> list[pulp.LpConstraint]:
    # An edge without a legal pair has no variables; its row is 0 = 1, which makes the program infeasible.
    return [pulp.LpAffineExpression([(x, 1) for x in edge.values()]) == 1 for edge in e]


def _limit_memory(
    model: pulp.LpProblem, memory: MemoryLimit, s: Strategies, excess: pulp.LpVariable | None = None
) -> float:
    """Keep the running sum m_t of the memory within the room at every time of its `timeline`, or above it by the
    variable `excess`, if that is given; returns the unit of the sums in bytes.

        m_t = m_(t−1) + Σ_(segments that begin) amount · s − Σ_(segments that end) amount · s            m_t ≤ room_t

    A row has terms for what changes, not for all that is alive.
    """
    legal = [np.array(list(node), dtype=np.int64) for node in s]
    times = timeline(memory.restricted(legal), list(map(len, legal)))
    unit = max(float(times.room.max()), 1.0) / tuning.SCALED_ROOM
    changes: list[dict[tuple[int, int], float]] = [{} for _ in range(len(times.room) + 1)]
    for v, begin, end, first in zip(times.owner, times.begin, times.end, times.first, strict=True):
        for k, amount in enumerate(times.amounts[first : first + len(legal[v])].tolist()):
            for t, change in ((begin, -amount / unit), (end, amount / unit)):
                at = int(v), int(legal[v][k])
                changes[t][at] = changes[t].get(at, 0.0) + change
    previous = None
    for t, room in enumerate((times.room / unit).tolist()):
        held = model.add_variable(f"m{t}", upBound=room if excess is None else None)
        terms = [(s[v][k], change) for (v, k), change in changes[t].items() if change]
        terms += [(held, 1.0)] if previous is None else [(held, 1.0), (previous, -1.0)]
        model += pulp.LpAffineExpression(terms) == 0
        if excess is not None:
            model += held - excess <= room
        previous = held
    return unit


def _chosen(s: Strategies) -> tuple[int, ...]:
    return tuple(max(node, key=lambda k: node[k].varValue or 0.0) for node in s)


class _QuietHighs(highspy.Highs):
    """HiGHS prints its name and licence when callbacks are enabled, in its constructor: before PuLP can forbid it."""

    def enableCallbacks(self) -> None:
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]  # highspy has no annotations


class PulpHighs(pulp.HiGHS):  # type: ignore[misc]  # PuLP has no annotations
    """PuLP's interface to HiGHS, silent from its first line, so that commands can print JSON. It begins at the values
    of the variables in `start`."""

    start: Mapping[pulp.LpVariable, bool] = MappingProxyType({})

    def createAndConfigureSolver(self, lp: pulp.LpProblem) -> None:
        """In place of PuLP's, which makes a solver that prints."""
        lp.solverModel = _QuietHighs()  # type: ignore[no-untyped-call]  # highspy has no annotations
        lp.solverModel.setOptionValue("mip_rel_gap", self.gapRel)
        lp.solverModel.setOptionValue("mip_abs_gap", self.gapAbs)
        if self.timeLimit is not None:
            lp.solverModel.setOptionValue("time_limit", float(self.timeLimit))

    def callSolver(self, lp: pulp.LpProblem) -> None:
        """From `start`."""
        columns = np.array([variable.index for variable in self.start], dtype=np.int32)
        lp.solverModel.setSolution(len(columns), columns, np.array(list(self.start.values()), dtype=np.float64))
        super().callSolver(lp)


def _run_highs(
    model: pulp.LpProblem, seconds: float | None, gap: float = 0.0, start: Mapping[pulp.LpVariable, bool] | None = None
) -> tuple[bool, bool, float]:
    """(finished, a choice was found, scaled lower bound)."""
    solver = PulpHighs(msg=False, gapRel=gap, gapAbs=0.0, timeLimit=seconds)
    solver.start = start or {}
    model.solve(solver)
    info = model.solverModel.getInfo()
    if model.sol_status == pulp.LpSolutionInfeasible:
        return True, False, np.inf
    proven = model.sol_status == pulp.LpSolutionOptimal and (gap == 0.0 or info.mip_gap <= tuning.HIGHS_PROVEN_GAP)
    return proven, proven or info.primal_solution_status == 2, float(info.mip_dual_bound)


def _run_cbc(model: pulp.LpProblem, seconds: float | None, gap: float) -> tuple[bool, bool, float]:
    """(finished, a choice was found, scaled lower bound). CBC reports its bound only in its log."""
    with tempfile.TemporaryDirectory(prefix="alpa-explore-cbc-") as folder:
        log = Path(folder, "log")
        bundled = pulp.PULP_CBC_CMD.pulp_cbc_path
        solver = pulp.COIN_CMD(
            path=bundled if os.access(bundled, os.X_OK) else "cbc",
            msg=False,
            gapRel=gap,
            gapAbs=0.0,
            timeLimit=seconds,
            logPath=str(log),
        )
        solver.tmpDir = folder
        try:
            model.solve(solver)
        except pulp.PulpSolverError as error:
            raise SolverError("CBC stopped", found=str(error), remedy="Use the 'highs' or 'auto' solver.") from None
        reported_bounds = re.findall(
            r"^Lower bound:\s+(\S+)", log.read_text(encoding="utf-8", errors="replace"), flags=re.MULTILINE
        )
    if model.sol_status == pulp.LpSolutionInfeasible:
        return True, False, np.inf
    if model.sol_status == pulp.LpSolutionOptimal:
        return True, True, float(pulp.value(model.objective))
    bound = float(reported_bounds[-1]) if reported_bounds else -np.inf
    return False, model.sol_status == pulp.LpSolutionIntegerFeasible, bound
