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
scaled so that the optimum is near 1e3, both gaps are 0, and the objective is computed again from the problem.

`alpa_form` writes the links as Alpa's own code does, for comparison: e binary, Σ_j e ≤ s, Σ_i e ≤ s and

                Σ_ij e_vu[i, j] = 1                  for every edge (v, u)              `_one_pair_an_edge`
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pulp

from alpa_explore.errors import SolverError
from alpa_explore.intra_op.ilp import tuning
from alpa_explore.intra_op.ilp.ilp_answer import conclude, cost_scale, trivial
from alpa_explore.intra_op.ilp.memory_rows import memory_rows
from alpa_explore.intra_op.ilp.quiet_highs import PulpHighs
from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution
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
) -> ShardingSolution:
    """Solve `problem` to optimality with PuLP and `backend` ("highs" or "cbc"); `gap` is accepted and ignored.

    Raises SolverError when CBC stops, or when a time limit passes before any legal choice was found.
    """
    started = time.perf_counter()
    if (answer := trivial(problem, backend, started)) is not None:
        return answer
    scale = cost_scale(problem)
    model = pulp.LpProblem("enumerated", pulp.LpMinimize)
    s = _strategies(model, problem)
    e = _pairs(model, problem, pulp.LpBinary if alpa_form else pulp.LpContinuous)
    sense = pulp.LpConstraintLE if alpa_form else pulp.LpConstraintEQ
    model += _objective(problem, s, e, scale)
    for constraint in _one_strategy_a_node(s):
        model += constraint
    for constraint in _rows_agree(problem, s, e, sense):
        model += constraint
    for constraint in _columns_agree(problem, s, e, sense):
        model += constraint
    for constraint in _one_pair_an_edge(e) if alpa_form else []:
        model += constraint
    for constraint in _memory_fits(model, memory, s) if memory is not None else []:
        model += constraint
    build_seconds = time.perf_counter() - started
    remaining = None
    if time_limit_seconds is not None:
        remaining = max(tuning.MIN_TIME_LIMIT_SECONDS, time_limit_seconds - (time.perf_counter() - started))
    finished, has_choice, bound = (_run_cbc if backend == "cbc" else _run_highs)(model, remaining)
    return conclude(
        problem,
        solver=backend,
        started=started,
        finished=finished,
        choices=_chosen(s) if has_choice else None,
        bound=bound / scale,
        variables=sum(map(len, s)) + sum(map(len, e)),
        constraints=model.numConstraints(),
        improve_by_descent=memory is None,
        build_seconds=build_seconds,
    )


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
    model = pulp.LpProblem("relaxed", pulp.LpMinimize)
    s = _strategies(model, problem, pulp.LpContinuous)
    e = _pairs(model, problem, pulp.LpContinuous)
    model += _objective(problem, s, e, scale)
    for constraint in (
        *_one_strategy_a_node(s),
        *_rows_agree(problem, s, e, pulp.LpConstraintEQ),
        *_columns_agree(problem, s, e, pulp.LpConstraintEQ),
    ):
        model += constraint
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


def _strategies(model: pulp.LpProblem, problem: ShardingProblem, kind: str = pulp.LpBinary) -> Strategies:
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


def _memory_fits(model: pulp.LpProblem, memory: MemoryLimit, s: Strategies) -> list[pulp.LpConstraint]:
    """The running sum of the memory stays within the room at every time (`memory_rows`)."""
    legal = [np.array(list(node), dtype=np.int64) for node in s]
    constraints, previous = [], None
    for number, row in enumerate(memory_rows(memory, legal)):
        held = model.add_variable(f"m{number}", upBound=row.room)
        terms = [(s[v][int(legal[v][k])], weight) for (v, k), weight in row.weights.items()]
        terms += [(held, 1.0)] if previous is None else [(held, 1.0), (previous, -1.0)]
        constraints.append(pulp.LpAffineExpression(terms) == 0)
        previous = held
    return constraints


def _chosen(s: Strategies) -> tuple[int, ...]:
    return tuple(max(node, key=lambda k: node[k].varValue or 0.0) for node in s)


def _run_highs(model: pulp.LpProblem, seconds: float | None) -> tuple[bool, bool, float]:
    """(finished, a choice was found, scaled lower bound)."""
    model.solve(PulpHighs(msg=False, gapRel=0.0, gapAbs=0.0, timeLimit=seconds))
    info = model.solverModel.getInfo()
    if model.sol_status == pulp.LpSolutionInfeasible:
        return True, False, np.inf
    if model.sol_status == pulp.LpSolutionOptimal:
        return True, True, float(info.mip_dual_bound)
    return False, info.primal_solution_status == 2, float(info.mip_dual_bound)


def _run_cbc(model: pulp.LpProblem, seconds: float | None) -> tuple[bool, bool, float]:
    """(finished, a choice was found, scaled lower bound). CBC reports its bound only in its log."""
    with tempfile.TemporaryDirectory(prefix="alpa-explore-cbc-") as folder:
        log = Path(folder, "log")
        bundled = pulp.PULP_CBC_CMD.pulp_cbc_path
        solver = pulp.COIN_CMD(
            path=bundled if os.access(bundled, os.X_OK) else "cbc",
            msg=False,
            gapRel=0.0,
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
