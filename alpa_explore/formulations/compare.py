"""`compare_solvers`: the same stage by each formulation, side by side: how large, how fast, how near the optimum.

    enumerated    Eq. 1 in PuLP with HiGHS: a variable for each pair of strategies                     `enumerated_ilp`
    auto          exact reduction, elimination and bounds: the default of the project                  `solve`
    factor        each axis of each node takes one option, linear resharding costs, then polished      `factor_ilp`
    independent   each axis alone, then a joint repair                                                 `independent_ilp`

Every objective is that of a legal choice under the exact costs of the whole mesh (`ShardingProblem.evaluate`). Each
method builds its strategies and resharding tables anew; compiling and importing are done before the clock starts.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from alpa_explore.cost.model import CostModel
from alpa_explore.errors import OptionError, SolverError, nearest_names
from alpa_explore.formulations import tuning
from alpa_explore.formulations.comparison import Comparison, SolverRow, StageInstance
from alpa_explore.formulations.independent_ilp import one_axis
from alpa_explore.formulations.methods import Frame, enumerated_row, factor_row, independent_row
from alpa_explore.intra_op.bounds.messages import prune_by_bound
from alpa_explore.intra_op.ilp.enumerated_ilp import solve_enumerated
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem

FORMULATIONS = ("enumerated", "auto", "factor", "independent")

_ROWS: dict[str, Callable[[Frame], SolverRow]] = {
    "enumerated": enumerated_row,
    "factor": factor_row,
    "independent": independent_row,
}


def compare_solvers(
    instance: StageInstance,
    solvers: Sequence[str] | None = None,
    *,
    time_limit_seconds: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Solve `instance` by each of `solvers` (all by default); `progress` gets the name of each before it starts.

    The mesh must have no axis of length 1. `auto` is always run, and first: it gives the optimum. Raises OptionError
    for an unknown formulation or a mesh without axes.
    """
    requested = FORMULATIONS if solvers is None else tuple(dict.fromkeys(solvers))
    check_formulations(requested)
    if not instance.mesh.shape:
        raise OptionError(
            "A comparison needs a mesh of several devices", found=f"mesh {instance.mesh}", remedy="Give 2 or more."
        )
    # The formulations that are not exact cannot represent forbidden entries: spec constraints are left out for all.
    instance = replace(instance, stage=instance.stage.without_constraints())
    _warm_up(instance)
    with _frozen_heap():
        progress("auto")
        started = time.perf_counter()
        stage_problem, problem = instance.build()
        build_seconds = time.perf_counter() - started
        best = solve(problem, time_limit_seconds=time_limit_seconds)
        if best.status is Status.INFEASIBLE:
            raise SolverError("The stage has no legal choice", found=problem.name, remedy=best.status.value)
        frame = Frame(instance, stage_problem, problem, best.choices, time_limit_seconds)
        too_large = solvers is None and problem.variables > tuning.MAX_ENUMERATED_VARIABLES
        left_out = ("enumerated",) if too_large else ()
        rows: list[SolverRow] = []
        for name in requested:
            if name == "auto":
                rows.append(
                    SolverRow(
                        solver="auto",
                        variables=best.variables,
                        constraints=best.constraints,
                        build_seconds=build_seconds,
                        solve_seconds=best.seconds,
                        status=best.status,
                        **frame.exact(best.choices, best.choices),
                    )
                )
            elif name not in left_out:
                progress(name)
                rows.append(_ROWS[name](frame))
    sizes = [len(costs) for costs in problem.node_costs]
    return Comparison(
        mesh=instance.mesh,
        first=instance.stage.first,
        last=instance.stage.last,
        nodes=len(sizes),
        edges=len(problem.edges),
        strategies=sum(sizes),
        most_strategies=max(sizes),
        pairs=problem.variables,
        optimum_seconds=best.bound,
        proven=best.status is Status.OPTIMAL,
        rows=tuple(rows),
        left_out=left_out,
    )


def check_formulations(names: Sequence[str]) -> None:
    """Raise OptionError, with the nearest names, for a formulation that does not exist."""
    for name in names:
        if name not in FORMULATIONS:
            raise OptionError("Unknown solver", found=repr(name), remedy=nearest_names(name, FORMULATIONS))


def _warm_up(instance: StageInstance) -> None:
    """Compile and load what the first solve of a process would otherwise pay for."""
    build_stage_problem(instance.stage, CostModel(instance.device, one_axis(instance.mesh, 0)))
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
def _frozen_heap() -> Iterator[None]:
    """Exclude the objects alive now (a captured graph, torch) from garbage collections while the clock runs."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
