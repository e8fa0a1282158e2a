"""The same stage by each formulation, side by side: how large, how fast, how near the optimum.

    enumerated    Eq. 1 in PuLP with HiGHS: a variable for each pair of strategies                     `enumerated_ilp`
    auto          exact reduction and elimination, the project's default                               `solve`
    factor        each axis of each node takes one option, linear disagreement costs, then polished    `factor_ilp`
    independent   each axis alone, then a joint repair                                                 `independent_ilp`

Every objective is that of a legal choice under the exact costs of the whole mesh (`ShardingProblem.evaluate`). Each
method builds its strategies and resharding tables anew; compiling and importing are done before the clock starts.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alpa_explore.cluster import Device, LogicalMesh
from alpa_explore.cost.model import CostModel
from alpa_explore.errors import OptionError, SolverError, nearest_names
from alpa_explore.intra_op.bounds.descend import is_legal
from alpa_explore.intra_op.bounds.message_bound import prune_by_bound
from alpa_explore.intra_op.formulations.axis_options import nearest_strategies, node_options
from alpa_explore.intra_op.formulations.batch_share import batch_share, chosen_options
from alpa_explore.intra_op.formulations.factor_ilp import solve_factors
from alpa_explore.intra_op.formulations.independent_ilp import labels_of, one_axis, solve_independent
from alpa_explore.intra_op.formulations.joint_repair import polish, repair
from alpa_explore.intra_op.ilp.enumerated_ilp import solve_enumerated
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.stage_graph import StageGraph
from alpa_explore.intra_op.stage.stage_problem import StageProblem, build_stage_problem

FORMULATIONS = ("enumerated", "auto", "factor", "independent")
TOO_MANY_PAIRS = 400_000
"""Variables of Eq. 1 above which the enumerated ILP is only counted, unless it is asked for by name."""

ROUNDING = 1e-8
"""Relative gaps below this are the tolerances of HiGHS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverRow:
    """One formulation on one stage. Seconds of the machine that ran it; objectives are seconds of training."""

    solver: str
    variables: int
    constraints: int
    build_seconds: float
    solve_seconds: float
    repair_seconds: float
    """Descent, and joint repair, under the exact costs; 0 for the exact formulations."""
    objective_seconds: float
    """Exact cost of what is shown."""
    objective_before_seconds: float | None
    """Exact cost of the formulation's own answer before descent or repair; None where that cannot exist."""
    impossible_nodes: int
    """Nodes at which the formulation's own answer is no strategy."""
    differing_nodes: int
    """Nodes at which the choice differs from that of `auto` (there may be several optima)."""
    batch_share_before: float
    """Share of the operators that can cut the batch at which every axis does, as the formulation had it."""
    batch_share: float
    """The same of what is shown."""
    status: Status

    @property
    def total_seconds(self) -> float:
        """From the stage to the answer."""
        return self.build_seconds + self.solve_seconds + self.repair_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The rows, and what they are measured against."""

    mesh: LogicalMesh
    first: int
    last: int
    nodes: int
    edges: int
    strategies: int
    """Of all nodes together."""
    most_strategies: int
    pairs: int
    """Variables of Eq. 1."""
    optimum_seconds: float
    """Lower bound that `auto` proved; the optimum where `proven`."""
    proven: bool
    rows: tuple[SolverRow, ...]
    left_out: tuple[str, ...]
    """Formulations that were only counted, being too large."""

    def gap(self, row: SolverRow) -> float:
        """How much dearer than the optimum the answer is, as a share of it."""
        return _gap(row.objective_seconds, self.optimum_seconds)

    def gap_before(self, row: SolverRow) -> float | None:
        """The same before descent or repair; None where that answer cannot exist."""
        if row.objective_before_seconds is None:
            return None
        return _gap(row.objective_before_seconds, self.optimum_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One stage on one mesh, with the prices that are minimised (see `StageProblem.at`)."""

    stage: StageGraph
    device: Device
    mesh: LogicalMesh
    inverse_b: float
    memory_price: float = 0.0
    microbatches_held: int = 1

    def build(self) -> tuple[StageProblem, ShardingProblem]:
        """The joint problem, built anew: nothing is shared between two methods that are timed."""
        built = build_stage_problem(self.stage, CostModel(self.device, self.mesh))
        return built, built.at(
            inverse_b=self.inverse_b, memory_price=self.memory_price, microbatches_held=self.microbatches_held
        )


def compare_solvers(
    question: Question,
    solvers: Sequence[str] | None = None,
    *,
    time_limit_seconds: float | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Answer `question` by each of `solvers` (all by default). The mesh must be squeezed.

    `auto` is always run: it gives the optimum. OptionError for an unknown formulation or a mesh without axes.
    """
    asked = FORMULATIONS if solvers is None else tuple(dict.fromkeys(solvers))
    check_formulations(asked)
    if not question.mesh.shape:
        raise OptionError("One device divides nothing", found=f"mesh {question.mesh}", remedy="Give 2 or more.")
    # Those that are not exact know nothing that is forbidden: there is no spec constraint on the operators.
    question = replace(question, stage=question.stage.without_constraints())
    _warm_up(question)
    with _quiet_heap():
        return _compare(question, asked, solvers is None, time_limit_seconds, say)


def _compare(
    question: Question,
    asked: Sequence[str],
    by_default: bool,
    time_limit_seconds: float | None,
    say: Callable[[str], None],
) -> Comparison:
    say("auto")
    started = time.perf_counter()
    built, problem = question.build()
    build_seconds = time.perf_counter() - started
    best = solve(problem, time_limit_seconds=time_limit_seconds)
    if best.status is Status.INFEASIBLE:
        raise SolverError("The stage has no legal choice", found=problem.name, remedy=best.status.value)
    frame = _Frame(question, built, problem, best.choices, time_limit_seconds)
    rows, left_out = [], []
    for name in asked:
        if name == "auto":
            rows.append(
                frame.row(
                    name,
                    best.choices,
                    best.choices,
                    status=best.status,
                    variables=best.variables,
                    constraints=best.constraints,
                    build=build_seconds,
                    solve=best.seconds,
                )
            )
        elif name == "enumerated" and by_default and problem.variables > TOO_MANY_PAIRS:
            left_out.append(name)
        else:
            say(name)
            rows.append(_METHODS[name](frame))
    sizes = [len(costs) for costs in problem.node_costs]
    return Comparison(
        mesh=question.mesh,
        first=question.stage.first,
        last=question.stage.last,
        nodes=len(sizes),
        edges=len(problem.edges),
        strategies=sum(sizes),
        most_strategies=max(sizes),
        pairs=problem.variables,
        optimum_seconds=best.bound,
        proven=best.status is Status.OPTIMAL,
        rows=tuple(rows),
        left_out=tuple(left_out),
    )


def check_formulations(names: Sequence[str]) -> None:
    """Raise OptionError, with the nearest names, for a formulation that does not exist."""
    for name in names:
        if name not in FORMULATIONS:
            raise OptionError("Unknown solver", found=repr(name), remedy=nearest_names(name, FORMULATIONS))


def solvers_table(comparison: Comparison) -> list[dict[str, Any]]:
    """One row a formulation; seconds and shares in plain numbers, every unit in its key."""
    return [
        {
            "solver": row.solver,
            "variables": row.variables,
            "constraints": row.constraints,
            "build_seconds": row.build_seconds,
            "solve_seconds": row.solve_seconds,
            "repair_seconds": row.repair_seconds,
            "total_seconds": row.total_seconds,
            "objective_seconds": row.objective_seconds,
            "gap": comparison.gap(row),
            "objective_before_repair_seconds": row.objective_before_seconds,
            "gap_before_repair": comparison.gap_before(row),
            "impossible_nodes_before_repair": row.impossible_nodes,
            "differing_nodes": row.differing_nodes,
            "batch_share_before_repair": row.batch_share_before,
            "batch_share": row.batch_share,
            "finished": row.status.name == "OPTIMAL",
        }
        for row in comparison.rows
    ]


@dataclass(frozen=True, slots=True)
class _Frame:
    """The question with the joint problem that every answer is priced on, and the choice to compare with."""

    question: Question
    built: StageProblem
    problem: ShardingProblem
    best: tuple[int, ...]
    limit: float | None

    def row(
        self,
        solver: str,
        before: tuple[int, ...],
        choices: tuple[int, ...],
        *,
        status: Status,
        variables: int,
        constraints: int,
        build: float,
        solve: float,
        repair: float = 0.0,
        impossible: int = 0,
        batch_before: float | None = None,
    ) -> SolverRow:
        assert is_legal(self.problem, choices), f"{solver} would show an impossible placement"
        nodes = node_options(self.built)
        share = batch_share(self.built, chosen_options(nodes, choices))
        possible = impossible == 0 and is_legal(self.problem, before)
        if batch_before is None:
            batch_before = batch_share(self.built, chosen_options(nodes, before))
        return SolverRow(
            solver=solver,
            variables=variables,
            constraints=constraints,
            build_seconds=build,
            solve_seconds=solve,
            repair_seconds=repair,
            objective_seconds=self.problem.evaluate(choices),
            objective_before_seconds=self.problem.evaluate(before) if possible else None,
            impossible_nodes=impossible,
            differing_nodes=sum(a != b for a, b in zip(choices, self.best, strict=True)),
            batch_share_before=batch_before,
            batch_share=share,
            status=status,
        )


def _enumerated(frame: _Frame) -> SolverRow:
    started = time.perf_counter()
    _, problem = frame.question.build()
    built = time.perf_counter() - started
    found = solve_enumerated(problem, time_limit_seconds=frame.limit)
    return frame.row(
        "enumerated",
        found.choices,
        found.choices,
        status=found.status,
        variables=found.variables,
        constraints=found.constraints,
        build=built + found.build_seconds,
        solve=found.seconds - found.build_seconds,
    )


def _factor(frame: _Frame) -> SolverRow:
    started = time.perf_counter()
    stage, problem = frame.question.build()
    built = time.perf_counter() - started
    answer = solve_factors(stage, problem, frame.question.inverse_b, frame.limit)
    started = time.perf_counter()
    choices = polish(problem, node_options(stage), answer.choices)
    return frame.row(
        "factor",
        answer.choices,
        choices,
        status=Status.OPTIMAL if answer.finished else Status.TIME_LIMIT,
        variables=answer.variables,
        constraints=answer.constraints,
        build=built + answer.build_seconds,
        solve=answer.solve_seconds,
        repair=time.perf_counter() - started,
        impossible=answer.impossible,
    )


def _independent(frame: _Frame) -> SolverRow:
    q = frame.question
    answer = solve_independent(
        q.stage,
        CostModel(q.device, q.mesh),
        inverse_b=q.inverse_b,
        memory_price=q.memory_price,
        microbatches_held=q.microbatches_held,
        time_limit_seconds=frame.limit,
    )
    started = time.perf_counter()
    stage, problem = q.build()
    nodes = node_options(stage)
    wanted = labels_of(nodes, answer.options)
    choices = repair(problem, nodes, wanted)
    repairing = time.perf_counter() - started
    nearest, impossible = nearest_strategies(problem, nodes, wanted)
    return frame.row(
        "independent",
        nearest,
        choices,
        status=Status.OPTIMAL if answer.finished else Status.TIME_LIMIT,
        variables=sum(s.variables for s in answer.solutions),
        constraints=sum(s.constraints for s in answer.solutions),
        build=answer.build_seconds,
        solve=answer.solve_seconds,
        repair=repairing,
        impossible=impossible,
        batch_before=batch_share(stage, answer.options),
    )


_METHODS: dict[str, Callable[[_Frame], SolverRow]] = {
    "enumerated": _enumerated,
    "factor": _factor,
    "independent": _independent,
}


def _warm_up(question: Question) -> None:
    """Compile and load what the first solve of a process would otherwise pay for."""
    build_stage_problem(question.stage, CostModel(question.device, one_axis(question.mesh, 0)))
    rng = np.random.default_rng(0)
    edges = ((0, 1), (1, 2), (2, 0))
    tiny = ShardingProblem(
        name="warm-up",
        node_costs=tuple(rng.random(3) for _ in range(3)),
        edges=edges,
        edge_costs=tuple(rng.random((3, 3)) for _ in edges),
    )
    prune_by_bound(tiny)
    solve(tiny)
    solve_enumerated(tiny)


@contextlib.contextmanager
def _quiet_heap() -> Iterator[None]:
    """What is alive now (a captured graph, torch) is not looked at again by a garbage collection under the clock."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _gap(objective: float, optimum: float) -> float:
    if optimum <= 0:
        return 0.0 if objective <= optimum else math.inf
    gap = objective / optimum - 1.0
    return gap if gap > ROUNDING else 0.0
