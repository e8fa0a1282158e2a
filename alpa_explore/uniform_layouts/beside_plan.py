"""A uniform layout that is faster than a plan, and a plan that starts from a layout.

The search for a plan has restrictions that layouts lack: logical meshes have two axes, so DP × CP × TP and
DP × expert TP × EP are out of reach, and what it minimises adds up seconds that a prediction overlaps. So the best
layout may be faster. To look takes 0.1 to 0.3 s where the works of the layouts are in the cache, and 10 to 60 s where
they are not: so that is done beside every plan, and this only on request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from alpa_explore import units
from alpa_explore.baselines.baseline import baseline
from alpa_explore.cluster import Cluster
from alpa_explore.errors import AlpaExploreError
from alpa_explore.execution.executors import Executor
from alpa_explore.execution.progress import ProgressCallback
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.plans.plan import Plan
from alpa_explore.uniform_layouts.layout import BASELINE, RECOMPUTATION, UniformLayout
from alpa_explore.uniform_layouts.layouts import Question
from alpa_explore.uniform_layouts.of_plan import RECOMPUTES
from alpa_explore.uniform_layouts.ranking import PricedLayout

NOTICEABLE = 0.005
"""Share of the time of a plan by which a layout must be faster to be named: the price of a layout differs from that of
the same plan by up to 0.4 % (tests/uniform_layouts/test_agreement.py)."""


def faster_layout(plan: Plan, model: str, *, sequence: int | None = None, precision: str | None = None) -> str:
    """The fastest uniform layout with the microbatches and the recomputation of a plan, in a sentence, where it is
    faster than the plan; '' where none is, or where that is not known without capturing the model. `model`, `sequence`
    and `precision` are those that the plan was asked for with."""
    recomputed = RECOMPUTES.get(plan.options.rematerialization, "")
    if plan.options.pipeline.paper or plan.options.pipeline.constrained or plan.options.spec_constraints:
        return ""
    if not plan.options.rematerialization and plan.model.rematerialization:
        return ""  # layer by layer, as no layout does
    try:
        question = Question.of(model, plan.global_batch, sequence, precision, cache=True)
        only = _only(plan.options.num_microbatches, (recomputed,))
        with Executor("serial") as executor:
            best = question.answer(plan.cluster, executor=executor, only=only, known_alone=True).best
    except AlpaExploreError:  # a model or a cluster without layouts, or works that are not known
        return ""
    if best is None or best.seconds >= (1.0 - NOTICEABLE) * plan.predicted.iteration_seconds:
        return ""
    share = 1.0 - best.seconds / plan.predicted.iteration_seconds
    return (
        f"The uniform layout {best.words} is priced at {units.seconds(best.seconds)}, {units.percent(share)} less than "
        "this plan: --from-layout best starts from it."
    )


def best_layout(
    model: str,
    cluster: Cluster,
    *,
    num_microbatches: int | None,
    global_batch: int | None,
    rematerialization: bool | str | None,
    sequence: int | None = None,
    precision: str | None = None,
    cache: bool = True,
    progress: ProgressCallback | None = None,
    cancel: threading.Event | None = None,
) -> PricedLayout | None:
    """The fastest uniform layout that fits with these microbatches (None: any number) and recomputation (None or
    'auto': any). Raises as `layouts`."""
    question = Question.of(model, global_batch, sequence, precision, cache=cache)
    kinds: tuple[str, ...] = RECOMPUTATION
    if rematerialization not in (None, "auto"):
        kinds = (RECOMPUTES.get("none" if rematerialization is False else str(rematerialization), ""),)
    with Executor(None) as executor:
        asked = question.answer(
            cluster, executor=executor, only=_only(num_microbatches, kinds), progress=progress, cancel=cancel
        )
    return asked.best


def plan_of_layout(
    row: PricedLayout, model: str, cluster: Cluster, *, precision: str | None, cancel: threading.Event | None
) -> Plan:
    """The plan that is this layout. Raises as `ax.baseline`."""
    layout = row.layout
    batch = layout.samples * layout.microbatches
    return baseline(
        microbatch_graph(model, layout.microbatches, precision=precision, global_batch=batch),
        cluster,
        BASELINE,
        num_microbatches=layout.microbatches,
        rematerialization=layout.rematerialization,
        cancel=cancel,
        **layout.degrees(row.blocks),
    )


def _only(
    num_microbatches: int | None, recomputed: Sequence[str]
) -> Callable[[tuple[UniformLayout, ...]], Sequence[UniformLayout]]:
    def chosen(layouts: tuple[UniformLayout, ...]) -> Sequence[UniformLayout]:
        return [
            layout
            for layout in layouts
            if num_microbatches in (None, layout.microbatches) and layout.recompute in recomputed
        ]

    return chosen
