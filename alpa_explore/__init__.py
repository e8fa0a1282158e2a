"""alpa_explore: the whole Alpa planner for a PyTorch model, every decision a figure.

    import alpa_explore as ax
    graph = ax.capture(model, (tokens, targets))
    plan = ax.plan(graph, "2x8:a100", num_microbatches=32, delta=0.5, num_layers=12)

Names are loaded when first used (PEP 562): importing the package takes neither torch nor a solver.

Packages, in the order in which data passes; each imports only those before it, and its docstring is the guide to it:
errors, units, arguments, templates, numerics · store, execution · graph · cluster · accuracy · models · tracing,
layering, schedules · sharding · cost · intra_op · pricing, iopddl, formulations · inter_op · search · plans · planner ·
baselines, programs · uniform_layouts · questions, validation · runtime, calibration · random_plans, attached ·
figures · course · cli.
ARCHITECTURE.md says what each holds. Begin with `planner/plan.py` and `search/resolve.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from alpa_explore.attached.attach import attach as attach
    from alpa_explore.attached.profile import profile as profile
    from alpa_explore.baselines.baseline import baseline as baseline
    from alpa_explore.calibration.from_run import recalibrate as recalibrate
    from alpa_explore.cluster import Cluster as Cluster
    from alpa_explore.course import exercise as exercise
    from alpa_explore.course import guess as guess
    from alpa_explore.course import hint as hint
    from alpa_explore.course import league as league
    from alpa_explore.course import points as points
    from alpa_explore.course import solution as solution
    from alpa_explore.course import student as student
    from alpa_explore.errors import AlpaExploreError as AlpaExploreError
    from alpa_explore.graph import TrainingGraph as TrainingGraph
    from alpa_explore.inter_op.options import PipelineOptions as PipelineOptions
    from alpa_explore.planner.interface import plan as plan
    from alpa_explore.planner.replan import replan as replan
    from alpa_explore.plans.plan import Plan as Plan
    from alpa_explore.plans.plan import load_plan as load_plan
    from alpa_explore.plans.rebuild import rebuild as rebuild
    from alpa_explore.programs.execution.interpret import interpret as interpret
    from alpa_explore.programs.lowering.lower import lower as lower
    from alpa_explore.questions.better_plan import better_plan as better_plan
    from alpa_explore.questions.exported import export as export
    from alpa_explore.questions.frontier import frontier as frontier
    from alpa_explore.questions.reprice import reprice as reprice
    from alpa_explore.questions.what_if import regrets as regrets
    from alpa_explore.questions.what_if import what_if as what_if
    from alpa_explore.random_plans.campaign import verify_random as verify_random
    from alpa_explore.runtime.launch import launch as launch
    from alpa_explore.runtime.verify import verify as verify
    from alpa_explore.runtime.verify import verify_interpreted as verify_interpreted
    from alpa_explore.sharding.splits import coverage as coverage
    from alpa_explore.sharding.zigzag import in_zigzag_order as in_zigzag_order
    from alpa_explore.tracing.batches import capture_batches as capture_batches
    from alpa_explore.tracing.capture import capture as capture
    from alpa_explore.uniform_layouts.layouts import layouts as layouts
    from alpa_explore.uniform_layouts.scaling import scaling as scaling

_HOME = {
    "AlpaExploreError": "alpa_explore.errors",
    "Cluster": "alpa_explore.cluster",
    "PipelineOptions": "alpa_explore.inter_op.options",
    "attach": "alpa_explore.attached.attach",
    "better_plan": "alpa_explore.questions.better_plan",
    "baseline": "alpa_explore.baselines.baseline",
    "Plan": "alpa_explore.plans.plan",
    "TrainingGraph": "alpa_explore.graph",
    "capture": "alpa_explore.tracing.capture",
    "capture_batches": "alpa_explore.tracing.batches",
    "coverage": "alpa_explore.sharding.splits",
    "exercise": "alpa_explore.course",
    "export": "alpa_explore.questions.exported",
    "frontier": "alpa_explore.questions.frontier",
    "guess": "alpa_explore.course",
    "hint": "alpa_explore.course",
    "in_zigzag_order": "alpa_explore.sharding.zigzag",
    "interpret": "alpa_explore.programs.execution.interpret",
    "layouts": "alpa_explore.uniform_layouts.layouts",
    "league": "alpa_explore.course",
    "launch": "alpa_explore.runtime.launch",
    "load_plan": "alpa_explore.plans.plan",
    "lower": "alpa_explore.programs.lowering.lower",
    "plan": "alpa_explore.planner.interface",
    "points": "alpa_explore.course",
    "profile": "alpa_explore.attached.profile",
    "regrets": "alpa_explore.questions.what_if",
    "rebuild": "alpa_explore.plans.rebuild",
    "recalibrate": "alpa_explore.calibration.from_run",
    "replan": "alpa_explore.planner.replan",
    "reprice": "alpa_explore.questions.reprice",
    "scaling": "alpa_explore.uniform_layouts.scaling",
    "solution": "alpa_explore.course",
    "student": "alpa_explore.course",
    "verify": "alpa_explore.runtime.verify",
    "verify_interpreted": "alpa_explore.runtime.verify",
    "verify_random": "alpa_explore.random_plans.campaign",
    "what_if": "alpa_explore.questions.what_if",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'alpa_explore' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
