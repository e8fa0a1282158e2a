"""The three functions of alpa_explore that an explorer works with; their imports (torch) never hold up a cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alpa_explore.graph import TrainingGraph
    from alpa_explore.plans.plan import Plan


def _capture(name: str, microbatch: int) -> TrainingGraph:
    from alpa_explore.models.catalog import entry
    from alpa_explore.planner import resolve

    return resolve(name, entry(name).global_batch // microbatch)


def _plan(*arguments: Any, pipeline: dict[str, Any] | None = None, **options: Any) -> Plan:
    """`pipeline`: the fields of PipelineOptions that are not the paper's."""
    from alpa_explore.inter_op.options import PipelineOptions
    from alpa_explore.planner import plan

    return plan(*arguments, pipeline=PipelineOptions(**(pipeline or {})), **options)


def _replan(plan: Plan, *, num_microbatches: int, **pipeline: Any) -> Plan:
    """`pipeline`: fields of the plan's PipelineOptions to change."""
    from alpa_explore.planner import replan

    options = replace(plan.options.pipeline, **pipeline)
    return replan(plan, num_microbatches=num_microbatches, pipeline=options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """What captures and plans; tests bring their own."""

    capture: Callable[[str, int], TrainingGraph] = _capture
    """(catalogue name, samples of a microbatch) -> the graph."""
    plan: Callable[..., Plan] = _plan
    replan: Callable[..., Plan] = _replan
