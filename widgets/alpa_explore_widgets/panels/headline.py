"""The top of the explorer as HTML, from the plan alone: a sentence, the figures, and the stages with their colours."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import stage_swatch
from alpa_explore.plans.report import text
from alpa_explore.plans.report.differences import differences
from alpa_explore.plans.report.headline import HeadlineFigure, against, headline

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan
    from alpa_explore.plans.records import PlanStage

_TONES = {1: ("alpa-better", "better"), -1: ("alpa-worse", "worse"), 0: ("", "")}
"""Tone of a change -> (CSS class, word)."""


def sentence_html(plan: Plan) -> str:
    """The plan in a few sentences, with the number of stages in bold."""
    sentence = escape(text.sentence(plan), quote=False)
    return re.sub(r"^(One stage|\d+ stages)", r"<b>\1</b>", sentence)


def tiles_html(plan: Plan, pinned: Plan | None = None) -> str:
    """The figures, each with its formula as a tooltip and its change against the pinned plan."""
    pinned_figures = {} if pinned is None else {figure.name: figure for figure in headline(pinned)}
    equal_batches = pinned is None or pinned.global_batch == plan.global_batch
    # The iteration times of two global batches cannot be judged against each other.
    tiles = [
        _tile(figure, pinned_figures.get(figure.name), judged=equal_batches or figure.name != "iteration")
        for figure in headline(plan)
    ]
    return f'<div class="alpa-tiles">{"".join(tiles)}</div>'


def differences_html(plan: Plan, pinned: Plan | None) -> str:
    """The options in which the plan differs from the pinned one."""
    if pinned is None:
        return ""
    listed = "; ".join(map(str, differences(pinned, plan))) or "no difference in the settings"
    return f'<p class="alpa-question"><b>Against the pinned plan:</b> {escape(listed)}</p>'


def stages_html(plan: Plan, theme: str) -> str:
    """The legend of all figures: the colour of each stage; each item is a button that selects its stage."""
    items = [
        f'<li><button type="button" data-alpa-key="{key(stage=s.index)}" '
        f'title="stage {s.index}: {_devices(s)} as logical mesh {_mesh(s.logical_mesh)}, '
        f"{units.seconds(s.latency_seconds)} per microbatch, {units.bytes_(s.peak_bytes)} per device; "
        f'press to select it"><i style="background:{stage_swatch(s.index, theme)}"></i>stage {s.index} '
        f"<span>{text.layers_phrase(s.layers)} · {_mesh(s.submesh)}</span></button></li>"
        for s in plan.stages
    ]
    return f'<ul class="alpa-stages" aria-label="Stages and their colours">{"".join(items)}</ul>'


def _tile(figure: HeadlineFigure, pinned: HeadlineFigure | None, *, judged: bool) -> str:
    """One figure; `judged`: whether its change counts as better or worse."""
    number, _, unit = figure.text.partition(" ")
    width = None if figure.share is None else min(max(figure.share, 0.0), 1.0)
    meter = "" if width is None else f'<div class="alpa-meter"><i style="width:{100 * width:.1f}%"></i></div>'
    unit_html = f" <small>{escape(unit)}</small>" if unit else ""
    beside = f"<i>{escape(figure.beside)}</i>" if figure.beside else ""
    change, tooltip = "", figure.why
    if pinned is not None:
        difference, tone = against(figure, pinned)
        css_class, verdict = _TONES[tone if judged else 0]
        change = f'<em class="{css_class}">{difference or "±0"}{f" {verdict}" if verdict else ""}</em>'
        tooltip += f"; pinned: {pinned.text}"
    return (
        f'<div class="alpa-tile" title="{escape(tooltip)}"><span>{escape(figure.name)}</span>'
        f"<b>{escape(number)}{unit_html}</b><p>{beside}{change}</p>{meter}</div>"
    )


def _mesh(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


def _devices(stage: PlanStage) -> str:
    count = len(stage.devices)
    return f"{'1 device' if count == 1 else f'{count:,} devices'} ({_mesh(stage.submesh)})"
