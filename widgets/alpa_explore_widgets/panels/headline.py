"""The top of the explorer as HTML, from the plan alone: a sentence, the figures, and the stages with their colours."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from alpa_explore.figures.keys import key
from alpa_explore.figures.style import stage_swatch
from alpa_explore.plans.phrases import layers_phrase, logical_mesh_phrase, stage_phrase, submesh_phrase
from alpa_explore.plans.report import text
from alpa_explore.plans.report.differences import differences
from alpa_explore.plans.report.error_bands import bytes_with_band, time_with_band
from alpa_explore.plans.report.headline import HeadlineFigure, against, headline

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan

_TONES = {1: ("alpa-better", "better"), -1: ("alpa-worse", "worse"), 0: ("", "")}
"""Tone of a change -> (CSS class, word)."""


_TILE_NAMES = {"FLOP/s of a device": "FLOP/s a device", "peak memory": "memory"}
"""Figure -> its name on a tile, where the full one is too long; the tooltip has the full one."""
_SHORT = {"a billion tokens": "per 10⁹ tokens", "a million samples": "per 10⁶ samples"}
"""The same for what stands beside a figure."""
_BANDED = ("iteration", "peak memory")
"""Figures with their error band on the tile; those that follow from them have it in the tooltip."""
_BAND_ROOM = 2
"""Characters more for a name with a band: ± and % are wide."""
_USUAL, _DIGIT, _SIGN = "00,000", 1.75, 0.9
"""The longest usual number; widths of a digit and of a sign of a figure, in characters of the small text."""


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
    """The legend of all figures in one row: the colour of each stage; each item is a button that selects its stage.

    Where there is little room an item is a colour and a number; its tooltip and its accessible name say all.
    """
    items = []
    for s in plan.stages:
        what = (
            f"{stage_phrase(s)} ({logical_mesh_phrase(s.logical_mesh)}), {time_with_band(plan, s.latency_seconds)} per "
            f"microbatch, {bytes_with_band(plan, s.peak_bytes)} per device"
        )
        swatch = f'<i style="background:{stage_swatch(s.index)}"></i>'
        items.append(
            f'<li><button type="button" data-alpa-key="{key(stage=s.index)}" title="{what}; press to select it" '
            f'aria-label="{what}"><b>{swatch}{s.index}</b>'
            f"<span>{submesh_phrase(s.submesh, s.device)}</span><span>{layers_phrase(s.layers)}</span></button></li>"
        )
    return f'<ul class="alpa-stages" aria-label="Stages and their colours">{"".join(items)}</ul>'


def _tile(figure: HeadlineFigure, pinned: HeadlineFigure | None, *, judged: bool) -> str:
    """One figure; `judged`: whether its change counts as better or worse."""
    number, _, unit = figure.text.partition(" ")
    width = None if figure.share is None else min(max(figure.share, 0.0), 1.0)
    meter = "" if width is None else f'<div class="alpa-meter"><i style="width:{100 * width:.1f}%"></i></div>'
    unit_html = f" <small>{escape(unit)}</small>" if unit else ""
    shown_name, shown_beside = _tile_name(figure), _SHORT.get(figure.beside, figure.beside)
    below = f"<i>{escape(shown_beside)}</i>" if figure.beside else ""
    tooltip = "; ".join(filter(None, (figure.why, figure.error)))
    if pinned is not None:
        difference, tone = against(figure, pinned)
        css_class, verdict = _TONES[tone if judged else 0]
        below = f'<em class="{css_class}">{difference or "±0"}{f" {verdict}" if verdict else ""}</em>'
        tooltip += f"; pinned: {pinned.text}"
    # Widths that depend on no usual number: a tile keeps its place while a slider moves.
    large = max(_width(number), _width(_USUAL)) + (len(unit) + 1 if unit else 0)
    room = len(shown_name) + (_BAND_ROOM if figure.name in _BANDED else 0)
    share = max(room, len(shown_beside), large)
    return (
        f'<div class="alpa-tile" style="--alpa-share:{share:.3g}" title="{escape(tooltip)}">'
        f"<span>{escape(shown_name)}</span><b>{escape(number)}{unit_html}</b><p>{below}</p>{meter}</div>"
    )


def _tile_name(figure: HeadlineFigure) -> str:
    """'iteration ± 9 %'."""
    name = _TILE_NAMES.get(figure.name, figure.name)
    return f"{name} {figure.band}" if figure.name in _BANDED else name


def _width(number: str) -> float:
    """The width of a large number, in characters of the small text."""
    return sum(_DIGIT if character.isdigit() else _SIGN for character in number)
