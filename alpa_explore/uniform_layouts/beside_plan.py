"""A plan and uniform layouts: what a plan does in their words, and what it gains over the best of them; a layout that
is faster than a plan; and a plan that starts from a layout.

A plan chooses a strategy for every operator. It corresponds to a uniform layout where all stages are of equal size and
use their axes alike (`plans.report.parallelism`); else the words say what it does instead.

The search for a plan has restrictions that layouts lack: logical meshes have two axes, so DP × CP × TP and
DP × expert TP × EP are out of reach, and what it minimises adds up seconds that a prediction overlaps. So the best
layout may be faster. To look takes 0.1 to 0.3 s where the works of the layouts are in the cache, and 10 to 60 s where
they are not: so that is done beside every plan, and this only on request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from alpa_explore import units
from alpa_explore.baselines.baseline import baseline
from alpa_explore.baselines.layout import BASELINE, RECOMPUTATION, RECOMPUTED, Layout
from alpa_explore.cluster.precisions import tensors_of
from alpa_explore.errors import AlpaExploreError
from alpa_explore.execution.executors import Executor
from alpa_explore.graph import full_precision
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.planner.request import PlanRequest
from alpa_explore.planner.resources import Resources, Running
from alpa_explore.plans.phrases import precision_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.parallelism import MOST, StageDegrees, axis_uses
from alpa_explore.plans.report.text import plan_words
from alpa_explore.plans.schedule_stages import planned_schedule
from alpa_explore.schedules.catalog import INTERLEAVED
from alpa_explore.uniform_layouts.layouts import Question
from alpa_explore.uniform_layouts.ranking import Layouts, PricedLayout

NOTICEABLE = 0.005
"""Share of the time of a plan by which a layout must be faster to be named: the price of a layout differs from that of
the same plan by up to 0.4 % (tests/uniform_layouts/test_agreement.py)."""
RECOMPUTES = {"": "none", "True": "full", **{name: kind for kind, name in RECOMPUTED.items()}}
"""Recomputation of a plan by its name -> that of a layout. Megatron-LM's selective one repeats what 'attention'
does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAsLayout:
    """A plan beside uniform layouts."""

    layout: Layout | None
    """The one that it corresponds to; None where there is none."""
    words: str
    """What it does."""
    seconds: float
    """Of an iteration."""
    samples: int
    """Of a microbatch, on all replicas together: the plan keeps the number that it was given."""
    best: PricedLayout | None
    """The fastest uniform layout that fits."""
    bytes: float = 0.0
    """Of the fullest device."""
    incomparable: str = ""
    """Why its time says nothing beside those of the layouts; empty where it can be compared."""
    priced: PricedLayout | None = None
    """The layout that it corresponds to, among those that are priced."""

    @property
    def gain(self) -> float | None:
        """Time of the best uniform layout / time of the plan − 1; None where they cannot be compared."""
        return None if self.incomparable or self.best is None else self.best.seconds / self.seconds - 1


def plan_beside(layouts: Layouts, plan: Plan) -> PlanAsLayout:
    """A plan, named as a layout, beside the layouts of its model."""
    layout, words = plan_layout(plan)
    return PlanAsLayout(
        layout=layout,
        words=words,
        seconds=plan.predicted.iteration_seconds,
        samples=plan.model.samples,
        best=layouts.best,
        bytes=plan.predicted.peak_bytes_per_device,
        incomparable=_incomparable(layouts, plan),
        priced=None if layout is None else layouts.find(layout),
    )


def _incomparable(layouts: Layouts, plan: Plan) -> str:
    here, there = plan.cluster, layouts.cluster
    if (here.nodes, here.devices_per_node, here.device.name) != (
        there.nodes,
        there.devices_per_node,
        there.device.name,
    ):
        return f"it is for {here}, the layouts for {there}"
    if here.device.software.name != there.device.software.name:
        return f"it is priced for {here.device.software.label}, the layouts for {there.device.software.label}"
    dtype = full_precision(tensors_of(layouts.precision) or layouts.precision)
    if (plan.model.precision, here.software.low_precision) != (dtype, there.software.low_precision):
        return f"it computes in {precision_phrase(plan.model, here)}, the layouts in {layouts.precision}"
    if plan.global_batch != layouts.global_batch:
        return f"its global batch is {plan.global_batch:,}, theirs {layouts.global_batch:,}"
    if plan.model.tokens != plan.model.samples * layouts.sequence:
        return f"its samples have {plan.model.tokens // plan.model.samples:,} tokens, theirs {layouts.sequence:,}"
    return ""


def plan_layout(plan: Plan) -> tuple[Layout | None, str]:
    """(the uniform layout that a plan corresponds to, or None; what it does in words)."""
    recompute = RECOMPUTES.get(plan.options.rematerialization)
    if not plan.options.rematerialization and plan.model.rematerialization:
        recompute = "full"
    devices = {stage.submesh for stage in plan.stages}
    layers = {stage.layers[1] - stage.layers[0] for stage in plan.stages}
    uses = [_degrees(stage) for stage in plan.stages]
    if recompute is None or len(devices) > 1 or len(layers) > 1 or None in uses or len(set(uses)) > 1:
        return None, plan_words(plan)
    degrees = uses[0]
    assert degrees is not None, "checked above"
    pipeline, options = len(plan.stages), plan.options
    chunks = plan.terms.turns if pipeline > 1 else 1
    samples, data = plan.model.samples, degrees.data
    if samples % data or planned_schedule(plan) not in ("1f1b", INTERLEAVED):
        return None, plan_words(plan)
    layout = Layout(
        tensor=degrees.tensor,
        pipeline=pipeline,
        data=data,
        context=degrees.context,
        expert=degrees.expert,
        expert_tensor=degrees.expert_tensor,
        microbatch=samples // data,
        microbatches=options.num_microbatches,
        chunks=chunks,
        zero_stage=degrees.zero,
        recompute=recompute,
    )
    return layout, layout.words


def _degrees(stage: PlanStage) -> StageDegrees | None:
    """The degrees of a stage; None where an axis has a use that no uniform layout has."""
    uses = axis_uses(stage)
    if not uses and stage.submesh != (1, 1):
        return None
    if any(use.kind == "replicated" or min(use.share, use.stored) < MOST for use in uses):
        return None
    zeros = {use.zero for use in uses if use.kind in ("data", "context")}
    return StageDegrees.of(stage, uses) if len(zeros) < 2 else None


def faster_layout(plan: Plan, model: str, *, precision: str | None = None) -> str:
    """The fastest uniform layout with the microbatches and the recomputation of a plan, in a sentence, where it is
    faster than the plan; '' where none is, or where that is not known without capturing the model. `model` and
    `precision` are those that the plan was asked for with."""
    recomputed = RECOMPUTES.get(plan.options.rematerialization, "")
    if plan.options.pipeline.paper or plan.options.pipeline.constrained or plan.options.spec_constraints:
        return ""
    if not plan.options.rematerialization and plan.model.rematerialization:
        return ""  # layer by layer, as no layout does
    try:
        question = Question.of(model, plan.global_batch, None, precision, cache=True)
        only = _only(plan.options.num_microbatches, (recomputed,))
        with Executor("serial") as executor:
            resources = Resources(executor=executor, store=None, progress=None, cancel=None)
            best = question.answer(plan.cluster, resources, only=only, known_alone=True).best
    except AlpaExploreError:  # a model or a cluster without layouts, or works that are not known
        return ""
    if best is None or best.seconds >= (1.0 - NOTICEABLE) * plan.predicted.iteration_seconds:
        return ""
    share = 1.0 - best.seconds / plan.predicted.iteration_seconds
    return (
        f"The uniform layout {best.words} is priced at {units.seconds(best.seconds)}, {units.percent(share)} less than "
        "this plan: --from-layout best starts from it."
    )


def best_layout(request: PlanRequest, running: Running) -> PricedLayout | None:
    """The fastest uniform layout that fits with the microbatches ('auto': any number) and the recomputation (None or
    'auto': any) of a request. Raises as `layouts`."""
    question = Question.of(_name_of(request), request.global_batch, None, request.precision, cache=running.cache)
    kinds: tuple[str, ...] = RECOMPUTATION
    if request.rematerialization not in (None, "auto"):
        kinds = (RECOMPUTES.get(str(request.rematerialization or "none"), ""),)
    only = _only(None if request.auto else request.count, kinds)
    with Executor(None) as executor:
        resources = Resources(executor=executor, store=None, progress=running.progress, cancel=running.cancel)
        return question.answer(request.cluster, resources, only=only).best


def plan_of_layout(row: PricedLayout, request: PlanRequest, cancel: threading.Event | None = None) -> Plan:
    """The plan that is this layout, of the model and on the cluster of a request. Raises as `ax.baseline`."""
    layout = row.layout
    batch = layout.samples * layout.microbatches
    graph = microbatch_graph(_name_of(request), layout.microbatches, precision=request.precision, global_batch=batch)
    return baseline(
        graph,
        request.cluster,
        BASELINE,
        num_microbatches=layout.microbatches,
        rematerialization=layout.rematerialization,
        cancel=cancel,
        **layout.degrees(row.blocks),
    )


def _name_of(request: PlanRequest) -> str:
    assert isinstance(request.model, str), "layouts are those of a model that is given by name"
    return request.model


def _only(num_microbatches: int | None, recomputed: Sequence[str]) -> Callable[[tuple[Layout, ...]], Sequence[Layout]]:
    def chosen(layouts: tuple[Layout, ...]) -> Sequence[Layout]:
        return [
            layout
            for layout in layouts
            if num_microbatches in (None, layout.microbatches) and layout.recompute in recomputed
        ]

    return chosen
