"""The lessons of teaching mode, from `lessons.toml`, and the panel that shows them.

LESSONS begins with the questions that people ask first; then it is in the order of the algorithm. This is the order of
the tabs in teaching mode.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import ipywidgets as W

from alpa_explore import units
from alpa_explore.figures.keys import read_key
from alpa_explore.plans.iteration_time import iteration_time, objective_seconds
from alpa_explore.plans.phrases import stage_phrase, submesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanStage
from alpa_explore.plans.report.error_bands import band_of
from alpa_explore.plans.report.iteration import eq_2_sum, iteration_phrase
from alpa_explore.plans.report.specs import spec_legend
from alpa_explore.plans.report.text import fullest, pace_setter
from alpa_explore.questions.explain import collective_seconds, time_parts
from alpa_explore.templates import filled, joined
from alpa_explore_widgets.elements.fields import plain_button
from alpa_explore_widgets.elements.page_widget import box, set_shown
from alpa_explore_widgets.session.state import State

if TYPE_CHECKING:
    from alpa_explore.uniform_layouts.ranking import Layouts
    from alpa_explore.uniform_layouts.scaling import Scaling

duration, size = units.seconds, units.bytes_
LESSONS: Mapping[str, Mapping[str, Any]] = joined(
    tomllib.loads((files(__package__) / "lessons.toml").read_text(encoding="utf-8"))
)
"""Title of a tab -> the templates of its lesson."""


def lesson_html(
    title: str, plan: Plan, stage: int, *, layouts: Layouts | None = None, scaling: Scaling | None = None
) -> str:
    """The lesson of a tab as HTML; `stage` is the example stage. The numbers are those of `layouts` and `scaling` in
    the tabs that show them, where they are known."""
    said = {part: lesson_text(title, part, plan, plan.stages[stage]) for part in LESSONS[title] if part != "values"}
    answer = ""
    if title == "Layouts" and layouts is not None:
        answer = layouts_numbers(plan, layouts)
    elif title == "Fit & scale" and scaling is not None:
        answer = scaling_numbers(plan, scaling)
    numbers = f"Priced here: {answer}" if answer else f"This plan: {said['numbers']}"
    return (
        f'<section class="alpa-lesson" aria-label="Lesson"><p><b>Step {_step(title)} of {len(LESSONS)}: '
        f'{escape(title)}.</b> {escape(said["shows"])}</p><p class="alpa-formula">{escape(said["formula"])}</p>'
        f'<p class="alpa-formula">{escape(numbers)}</p>'
        + "".join(f"<p><b>{part.title()}.</b> {escape(said[part])}</p>" for part in ("why", "try", "question"))
        + "</section>"
    )


def lesson_text(title: str, part: str, plan: Plan, stage: PlanStage) -> str:
    """A part of a lesson (`formula`, `numbers`, …) for a plan and the example stage."""
    lesson = LESSONS[title]
    return filled(lesson[part], {**_NAMES, "plan": plan, "stage": stage}, lesson.get("values"))


def _step(title: str) -> int:
    return list(LESSONS).index(title) + 1


def layouts_numbers(plan: Plan, layouts: Layouts) -> str:
    """The gain of the plan over the best of these layouts; '' where the two cannot be compared."""
    from alpa_explore.uniform_layouts.beside_plan import plan_beside  # late: no other tab needs the layouts

    beside = plan_beside(layouts, plan)
    same = layouts.model.partition("@")[0] == plan.model.name
    if not same or beside.gain is None or beside.best is None:
        return ""
    gain = f"{'−' if beside.gain < 0 else ''}{units.percent(abs(beside.gain))}"
    return (
        f"{duration(beside.best.seconds)} / {duration(beside.seconds)} − 1 = {gain}; the best uniform layout is "
        f"{beside.best.words}."
    )


def scaling_numbers(plan: Plan, scaling: Scaling) -> str:
    """The efficiency on the most devices of one kind, that of the plan where it is there; '' before two are known."""
    own = plan.cluster.device.name
    device = own if own in scaling.devices else next(iter(scaling.devices), "")
    known = [
        (point.cluster, point.best.tokens_per_second)
        for point in scaling.of(device)
        if point.state == "priced" and point.best is not None
    ]
    if len(known) < 2:
        return ""
    (few, slow), (many, fast) = known[0], known[-1]
    share = fast / many.devices / (slow / few.devices)
    lacking = [point for point in scaling.of(device) if point.state == "does not fit"]
    lacks = "".join(f"; on {p.cluster} a device lacks {size(p.missing_bytes)}" for p in lacking[-1:])
    return (
        f"{few} and {many}: ({fast:,.0f} / {many.devices:,}) / ({slow:,.0f} / {few.devices:,}) = "
        f"{units.percent(share)}{lacks}."
    )


def _b(plan: Plan) -> int:
    return plan.options.num_microbatches


def _pieces(plan: Plan) -> int:
    """Tokens of a microbatch; of images, which are one token each, its samples."""
    return max(plan.model.tokens, plan.model.samples)


def _rate(plan: Plan) -> float:
    return _b(plan) * _pieces(plan) / plan.predicted.iteration_seconds


def _limit(plan: Plan) -> str:
    """What a layer may have of FLOPs."""
    if plan.options.boundaries:
        return "the boundaries were set by hand"
    total, count, delta = sum(layer.flops for layer in plan.layers), len(plan.layers), plan.options.delta
    return f"(1 + {delta:g}) · {units.flops(total)} / {count} = {units.flops((1 + delta) * total / count)} is allowed"


def _parts_of_stage(plan: Plan, stage: PlanStage) -> str:
    """Computation and collectives of a microbatch, and what an iteration adds."""
    axes = collective_seconds(plan, stage)
    if axes is None:
        time = duration(stage.microbatch_seconds)
        return f"stage {stage.index}: {time} per microbatch; its strategies are not in the plan."
    moved = sum(seconds for _, seconds in axes)
    return (
        f"stage {stage.index}: {duration(stage.microbatch_seconds - moved)} of computation + {duration(moved)} of "
        f"collectives = {duration(stage.microbatch_seconds)} per microbatch; "
        f"{duration(stage.iteration_seconds)} per iteration for gradient sums and the update."
    )


def _bubble(plan: Plan) -> str:
    """By the formula, where T is that of Eq. 2."""
    b, p, count = _b(plan), plan.predicted, len(plan.stages)
    if not plan.options.pipeline.mode:
        return f"{units.percent(p.bubble_fraction)} of the simulated {duration(p.iteration_seconds)}."
    return (
        f"1 − {b:,} · {duration(p.sum_latency_seconds)} / ({count} · {duration(p.iteration_seconds)}) = 1 − "
        f"{duration(b * p.sum_latency_seconds)} / {duration(count * p.iteration_seconds)} = "
        f"{units.percent(p.bubble_fraction)}."
    )


def _with_error(plan: Plan) -> str:
    """T with the error that runs like it have."""
    seconds, band = plan.predicted.iteration_seconds, band_of(plan, "seconds")
    if band is None:
        kind = f"{plan.cluster.software.label} on {plan.cluster.device.name}"
        return f"T = {duration(seconds)}; no run of {kind} was measured, so its error is not known."
    low, high = duration(seconds / (1 + band.fraction)), duration(seconds / (1 - min(band.fraction, 0.9)))
    return f"T = {duration(seconds)} {band.short}, so about {low} to {high}: {band.kind}."


def _step_words(plan: Plan) -> str:
    time = iteration_time(plan)
    return duration(plan.predicted.iteration_seconds) if time is None else iteration_phrase(time)


_OWN = (_b, _pieces, _rate, _limit, _parts_of_stage, _bubble, _with_error, _step_words, _step)
_OF_PLANS = (eq_2_sum, fullest, objective_seconds, pace_setter, spec_legend, stage_phrase, submesh_phrase, time_parts)
_NAMES = {"units": units, **{function.__name__.lstrip("_"): function for function in (*_OWN, *_OF_PLANS)}}
"""What the templates may name."""


class LessonPanel:
    """The lesson above the figure; hidden while teaching mode is off, and in tabs without a lesson."""

    def __init__(self, go_to: Callable[[str], None]) -> None:
        self.on = False
        self._title = ""
        self.text = W.HTML()
        self.next = plain_button("", "The next lesson", lambda: go_to(next_tab(self._title)))
        self.widget = box("alpa-lesson-panel", self.text, self.next, kind=W.VBox)

    def show(self, state: State, title: str, tab_stage: int | None) -> None:
        """Update the lesson for the tab `title` and the plan on screen. Its example is the stage that the tab is about,
        else the selected stage, else the slowest one."""
        self._title = title
        plan = state.plan
        shown = self.on and plan is not None and title in LESSONS
        set_shown(self.widget, on=shown)
        if shown and plan is not None:
            self.next.description = f"Next: {next_tab(title)}"
            stage = tab_stage
            if stage is None:
                stage = int(read_key(state.selection).get("stage", pace_setter(plan).index))
            layouts = None if state.layouts is None else state.layouts.found
            scaling = None if state.scaling is None else state.scaling.found
            self.text.value = lesson_html(title, plan, stage, layouts=layouts, scaling=scaling)


def next_tab(title: str) -> str:
    """The tab after `title` in the order of the lessons; the first one after the last."""
    titles = list(LESSONS)
    return titles[(titles.index(title) + 1) % len(titles)]
