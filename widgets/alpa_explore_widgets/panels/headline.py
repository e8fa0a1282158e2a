"""The top of the explorer as HTML, from the plan alone: a sentence, the figures, and the stages with their colours."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import stage_color
from alpa_explore.plans.report import text
from alpa_explore.plans.report.differences import differences
from alpa_explore.plans.report.headline import HeadlineFigure, against, headline

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan
    from alpa_explore.plans.records import PlanStage

_TONES = {1: ("alpa-better", "better"), -1: ("alpa-worse", "worse"), 0: ("", "")}


def sentence(plan: Plan) -> str:
    """The plan in words, how it is divided in bold."""
    said = escape(text.sentence(plan), quote=False)
    return re.sub(r"^(One stage|\d+ stages)", r"<b>\1</b>", said)


def tiles(plan: Plan, pinned: Plan | None = None) -> str:
    """The figures, each with the formula behind it as its tooltip, and its change against the pinned plan."""
    before = {} if pinned is None else {f.name: f for f in headline(pinned)}
    equal_batches = pinned is None or pinned.global_batch == plan.global_batch
    cells = [
        _tile(figure, before.get(figure.name), judged=equal_batches or figure.name != "iteration")
        for figure in headline(plan)
    ]
    return f'<div class="alpa-tiles">{"".join(cells)}</div>'


def apart(plan: Plan, pinned: Plan | None) -> str:
    """What the plan was asked otherwise than the pinned one."""
    if pinned is None:
        return ""
    words = "; ".join(map(str, differences(pinned, plan))) or "this is it, or its settings are the same"
    return f'<p class="alpa-question"><b>Against the pinned plan:</b> {escape(words)}</p>'


def stages(plan: Plan, theme: str) -> str:
    """The legend of all figures: one colour a stage, everywhere; each is a button that selects its stage."""
    items = [
        f'<li><button type="button" data-alpa-key="{key(stage=s.index)}" '
        f'title="stage {s.index}: {_devices(s)} as logical mesh {_mesh(s.logical_mesh)}, '
        f'{units.seconds(s.latency_seconds)} a microbatch, {units.bytes_(s.peak_bytes)} a device; press to select it">'
        f'<i style="background:{stage_color(s.index, theme)}"></i>stage {s.index} '
        f"<span>{named_layers(s.layers)} · {_mesh(s.submesh)}</span></button></li>"
        for s in plan.stages
    ]
    return f'<ul class="alpa-stages" aria-label="Stages and their colours">{"".join(items)}</ul>'


def _tile(figure: HeadlineFigure, before: HeadlineFigure | None, *, judged: bool) -> str:
    """`judged`: whether a change is better or worse; an iteration of another batch is neither."""
    number, _, unit = figure.text.partition(" ")
    width = None if figure.share is None else min(max(figure.share, 0.0), 1.0)
    meter = "" if width is None else f'<div class="alpa-meter"><i style="width:{100 * width:.1f}%"></i></div>'
    small = f" <small>{escape(unit)}</small>" if unit else ""
    beside = f"<i>{escape(figure.beside)}</i>" if figure.beside else ""
    change, why = "", figure.why
    if before is not None:
        words, tone = against(figure, before)
        style, said = _TONES[tone if judged else 0]
        change = f'<em class="{style}">{words or "±0"}{f" {said}" if said else ""}</em>'
        why += f"; pinned: {before.text}"
    return (
        f'<div class="alpa-tile" title="{escape(why)}"><span>{escape(figure.name)}</span>'
        f"<b>{escape(number)}{small}</b><p>{beside}{change}</p>{meter}</div>"
    )


def named_layers(layers: tuple[int, int]) -> str:
    """'layer 3', 'layers 0–2'."""
    return f"layer{'' if layers[0] == layers[1] else 's'} {text.run_of_layers(layers)}"


def _mesh(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


def _devices(stage: PlanStage) -> str:
    count = len(stage.devices)
    return f"{'1 device' if count == 1 else f'{count:,} devices'} ({_mesh(stage.submesh)})"
