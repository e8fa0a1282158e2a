"""The frontier of a stage: how much slower it becomes with less memory.

Seconds are those of one microbatch at the plan's B. Bytes are weight + held × activation bytes: over these the
frontier is exact where it says so. The workspace is a peak over time and no sum: it is added to the points that were
found (`peak_bytes`), and decides with them whether a point fits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from alpa_explore.errors import OptionError
from alpa_explore.intra_op.memory.pareto import Caps
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution
from alpa_explore.intra_op.solve import solve
from alpa_explore.plans.plan import Plan, PlanStage
from alpa_explore.plans.report.tables import Row, stage_named
from alpa_explore.pricing.memory_frontiers import whole_frontier
from alpa_explore.pricing.stage_costs import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """One choice for a stage."""

    seconds: float
    """Of a microbatch: microbatch + iteration / B."""
    held_bytes: float
    """Weights + held × activations, a device."""
    peak_bytes: float
    """`held_bytes` + the workspace."""
    logical_mesh: tuple[int, ...]
    provenance: Provenance
    fits: bool
    chosen: bool
    """It is what the plan holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFrontier:
    """The points, fastest first."""

    stage: int
    layers: tuple[int, int]
    microbatches_held: int
    memory_bytes: int
    """Of a device."""
    complete: bool
    """True when no choice on the stage's logical mesh beats or falls between these points, in (seconds, held_bytes)."""
    points: tuple[FrontierPoint, ...]


def frontier(plan: Plan, stage: int, *, held: int | None = None, most: int = 24) -> StageFrontier:
    """The frontier of stage `stage` of `plan` on its logical mesh, beside `held` microbatches (those of the plan).

    Exact where Pareto sets stay small, else the convex part in at most `most` solves; every point says which.
    OptionError for a stage that is not there, and for a plan that was read from a file (see `known_frontier`).
    """
    here = stage_named(plan, stage)
    if plan.details is None:
        raise OptionError(
            "This plan was read from a file",
            found="a plan without the problems behind its stages",
            remedy="Plan again with the same model and options: its solves are kept, so that is quick.",
        )
    if held is not None and held < 1:
        raise OptionError(
            "A stage holds at least one microbatch", found=f"held={held}", remedy="Give 1 or more, or leave it out."
        )
    held = here.microbatches_held if held is None else held
    keyed = {c.solution_key: c for found in plan.costs.candidates.values() for c in found}
    candidate = keyed[here.solution_key]
    mesh = candidate.logical_mesh

    def solver(problem: ShardingProblem, gap: float) -> ShardingSolution:
        return solve(problem, gap=gap)

    found = whole_frontier(
        plan.details.problem(here.layers, mesh, candidate.version),
        solver,
        plan.cluster.device.memory_bytes,
        held,
        1.0 / plan.options.num_microbatches,
        most,
        Caps(),
    )
    chosen = plan.details.choices[here.solution_key]
    points = [
        (
            p.totals.microbatch_seconds + p.totals.iteration_seconds / plan.options.num_microbatches,
            p.totals.weight_bytes + held * p.totals.activation_bytes,
            p.totals.workspace_bytes,
            mesh.shape,
            p.provenance,
            p.choices == chosen,
        )
        for p in found.points
    ]
    return _made(plan, here, held, points, complete=found.proven)


def known_frontier(plan: Plan, stage: int) -> StageFrontier:
    """What the plan's stage costs know of stage `stage`, on all logical meshes: no solve is made.

    Points that another one beats in both are left out, but never the plan's own. OptionError for a stage that is not
    there.
    """
    here = stage_named(plan, stage)
    b, held = plan.options.num_microbatches, here.microbatches_held
    pieces = [(m.nodes, m.devices_per_node) for m in plan.costs.submeshes]
    candidates = plan.costs.candidates[(*here.layers, pieces.index(here.submesh))]
    points = [
        (
            c.latency_seconds(b),
            c.weight_bytes + held * c.activation_bytes,
            c.workspace_bytes,
            c.logical_mesh.shape,
            c.provenance,
            c.solution_key == here.solution_key,
        )
        for c in candidates
    ]
    kept = [p for p in points if p[-1] or not any(q[0] <= p[0] and q[1] <= p[1] and q[:2] != p[:2] for q in points)]
    return _made(plan, here, held, kept, complete=False)


def frontier_table(found: StageFrontier) -> list[Row]:
    """One row a point, the fastest first."""
    return [
        {
            "latency_seconds": p.seconds,
            "held_bytes": p.held_bytes,
            "peak_bytes": p.peak_bytes,
            "logical_mesh": p.logical_mesh,
            "provenance": str(p.provenance),
            "fits": p.fits,
            "chosen": p.chosen,
        }
        for p in found.points
    ]


def _made(
    plan: Plan,
    stage: PlanStage,
    held: int,
    points: Iterable[tuple[float, float, float, tuple[int, ...], Provenance, bool]],
    *,
    complete: bool,
) -> StageFrontier:
    memory = plan.cluster.device.memory_bytes
    return StageFrontier(
        stage=stage.index,
        layers=stage.layers,
        microbatches_held=held,
        memory_bytes=memory,
        complete=complete,
        points=tuple(
            FrontierPoint(
                seconds=seconds,
                held_bytes=size,
                peak_bytes=size + workspace,
                logical_mesh=shape,
                provenance=found,
                fits=size + workspace <= memory,
                chosen=chosen,
            )
            for seconds, size, workspace, shape, found, chosen in sorted(points, key=lambda p: p[:2])
        ),
    )
