"""The top of the explorer: the verdict on a plan, the best layouts beside it, and its stages with their colours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

import ipywidgets as W

from alpa_explore import units
from alpa_explore.accuracy.error_band import usable_bytes
from alpa_explore.figures.keys import aside_key, key
from alpa_explore.figures.style import stage_swatch
from alpa_explore.plans.phrases import layers_phrase, logical_mesh_phrase, stage_phrase, submesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report import text
from alpa_explore.plans.report.compare import change_text, differences
from alpa_explore.plans.report.error_bands import (
    band_of,
    bytes_with_band,
    measured_sentence,
    measured_share,
    plan_bands_sentence,
    tight,
    time_with_band,
)
from alpa_explore.plans.report.headline import HeadlineFigure, against, headline
from alpa_explore.plans.report.parallelism import parallelism_lines
from alpa_explore.sharding.rules.attention import HEAVY
from alpa_explore.units import SMALL
from alpa_explore_widgets.session.asking.layouts import question_of
from alpa_explore_widgets.session.settings import SCALED_SETTINGS, Settings
from alpa_explore_widgets.session.state import State

if TYPE_CHECKING:
    from alpa_explore.uniform_layouts.ranking import Layouts, PricedLayout

_TONES = {1: ("better", "better"), -1: ("worse", "worse"), 0: ("quiet", "")}
"""Tone of a change -> (the end of its CSS class, word)."""
_BEST = 3
"""Layouts that are listed beside the plan."""


class VerdictPanel:
    """`head` stands across the whole explorer, `below` above the tabs."""

    def __init__(self) -> None:
        self.head, self.below = W.HTML(), W.HTML()
        self._said: tuple[Any, ...] = (None, None, None, None, None)
        """What the verdict was made of last."""
        self._verdict = ""
        self._beside: tuple[object, object, str] = (None, None, "")
        """The plan and the layouts that were compared last, and what was found."""

    def show(self, state: State, *, with_best: bool = True) -> None:
        """Update both; below, the best layouts are listed where the tab itself does not."""
        plan = state.plan
        if plan is None:
            none = "No plan: the reason is below." if state.fault else "No plan yet: press Plan."
            note = "Planning; figures appear with the first plan." if state.planning else none
            self.head.value, self.below.value = f'<p class="alpa-question">{note}</p>', ""
            return
        guess = estimated_seconds(state)
        stale = " alpa-stale" if guess is None and (state.out_of_date or state.fault) else ""
        scaling = None if state.scaling is None else state.scaling.found
        prices = {} if scaling is None else dict(scaling.prices)
        said = (plan, state.pinned, prices, estimate_words(state), guess)
        if any(a is not b and (hasattr(a, "costs") or a != b) for a, b in zip(said, self._said, strict=True)):
            self._said, self._verdict = said, verdict_html(*said)
        self.head.value = f'<div class="alpa-verdict{stale}">{self._verdict}</div>'
        older, best = stale or _stale(guess), self._best(state, plan) if with_best else ""
        self.below.value = (
            f'<div class="alpa-below{older}">{best}{differences_html(plan, state.pinned)}{stages_html(plan)}</div>'
        )

    def _best(self, state: State, plan: Plan) -> str:
        """The best of them."""
        layouts = layouts_beside(state)
        if layouts is None:
            return ""
        if self._beside[0] is not plan or self._beside[1] is not layouts:
            self._beside = plan, layouts, best_html(layouts, plan)
        return self._beside[2]


def estimated_seconds(state: State) -> float | None:
    """Seconds of an iteration while the planner runs, where the plan on screen does not answer; None where it does, and
    where nothing is known."""
    plan, old = state.plan, state.plan_settings
    return None if plan is None or old is None or not state.following else scaled_seconds(plan, old, state.settings)


def scaled_seconds(plan: Plan, old: Settings, new: Settings) -> float | None:
    """About the seconds of an iteration with settings that only scale the work of a device, from the plan of the `old`
    ones; None where none of these differs, or another one does.

    T = once + Σt + (B − 1) · t_max, in which t grows with the FLOPs of a microbatch and shrinks with the devices, and
    `once`, what is paid once an iteration, stays.
    """
    if old.equal_in(SCALED_SETTINGS, new) or old.waits_for_plan(new) or new.sequence is None is not old.sequence:
        return None
    tokens = new.microbatch / old.microbatch
    if new.sequence is not None and new.sequence != old.sequence:
        tokens *= _sequence_work(plan, new.sequence / (plan.model.tokens / plan.model.samples))
    devices = new.nodes * new.devices_per_node / (old.nodes * old.devices_per_node)
    predicted, b = plan.predicted, plan.options.num_microbatches
    work = predicted.sum_latency_seconds + (b - 1) * predicted.t_max_seconds
    new_work = predicted.sum_latency_seconds + (new.num_microbatches - 1) * predicted.t_max_seconds
    return predicted.iteration_seconds - work + new_work * tokens / devices


def _sequence_work(plan: Plan, longer: float) -> float:
    """The FLOPs of a sample with so many times the tokens over those of now: those of attention grow with their
    square."""
    if plan.details is None:
        return longer
    operators = plan.details.graph.operators
    share = sum(o.flops for o in operators if o.kind in HEAVY) / sum(o.flops for o in operators)
    return longer * (1.0 - share + share * longer)


def estimate_words(state: State) -> str:
    """What is said of a time that is not exact; '' for an exact one."""
    if state.following and (state.estimated or estimated_seconds(state) is not None):
        return "an estimate · exact in a moment"
    return "an estimate: other choices may be better · press Plan" if state.estimated else ""


def verdict_html(
    plan: Plan,
    pinned: Plan | None = None,
    prices: Mapping[str, float] | None = None,
    estimate: str = "",
    guess: float | None = None,
) -> str:
    """Time, layout, whether it fits, and what it makes of its devices; the rest of the figures is in the tooltips.

    `prices` are dollars for an hour of a device; with a pinned plan each figure has its change against it. `estimate`
    is said of a time that is not exact, and `guess`, if there is one, is that time: all else is of the plan before.
    """
    figures, before = _figures(plan), None if pinned is None else _figures(pinned)
    time, rate, share = figures["iteration"], figures["rate"], figures["FLOP/s of a device"]
    equal_batches = pinned is None or pinned.global_batch == plan.global_batch

    def change(name: str, *, judged: bool = True) -> str:
        return "" if before is None or name not in before else _change(figures[name], before[name], judged=judged)

    number, _, unit = (time.text if guess is None else units.seconds(guess)).partition(" ")
    about, kind = ("≈ ", "alpa-quiet alpa-estimate") if estimate else ("", "alpa-quiet")
    # The iteration times of two global batches cannot be judged against each other.
    seconds = (
        f'<p class="alpa-time" title="{escape(_why(time))}">{about}<b>{number}</b> {unit} <span>an iteration</span>'
        f"{change('iteration', judged=equal_batches) if guess is None else ''}</p>"
    )
    facts = [
        _fits(plan, figures["peak memory"], change("peak memory")),
        _fact(rate.text, f"{rate.beside} a GPU", _rate_words(figures), change("rate")),
        _fact(units.percent(share.share or 0.0), "MFU", f"{share.text} a device; {_why(share)}", change(share.name)),
    ]
    if len(plan.stages) > 1:
        bubble = figures["bubble"]
        facts.append(_fact(bubble.text, "bubble", _why(bubble), change("bubble")))
    if (price := (prices or {}).get(plan.cluster.device.name)) is not None:
        dollars = plan.cluster.devices * price / 3600.0 / plan.tokens_per_second * 1e6
        hint = f"{plan.cluster.devices:,} devices at {price:g} $ an hour"
        facts.append(_fact(f"{units.number(dollars, 3)} $", "a million tokens", hint))
    layout = " · ".join(f"<span>{escape(part)}</span>" for part in text.plan_words(plan).split(" · "))
    words = escape("; ".join(["the microbatch is that of one replica", *parallelism_lines(plan)]))
    return (
        f'<div>{seconds}<p class="{kind}" title="{escape(_trust(plan))}">'
        f"{escape(estimate or _error(plan))}</p></div>"
        f'<div class="{_stale(guess)}"><p class="alpa-words" title="{words}">{layout}</p>'
        f'<p class="alpa-facts">{"".join(facts)}</p></div>'
    )


def layouts_beside(state: State) -> Layouts | None:
    """The layouts of the plan's model, cluster and batch, once they are priced."""
    if state.layouts is None or state.layouts.found is None or state.plan_settings is None:
        return None
    asked = state.layouts.question
    same = replace(question_of(state.plan_settings), global_batch=asked.global_batch) == asked
    return state.layouts.found if same else None


def best_html(layouts: Layouts, plan: Plan, *, aside: bool = False) -> str:
    """The fastest layouts that fit and are not the plan: each with its time against the plan's, and *Open*, or
    *Compare* where it is planned `aside`."""
    from alpa_explore.uniform_layouts.beside_plan import plan_beside

    beside = plan_beside(layouts, plan)
    others = [priced for priced in layouts.fitting if priced.layout != beside.layout][:_BEST]
    seconds = None if beside.incomparable else plan.predicted.iteration_seconds
    rows = "".join(_layout_row(layouts, one, seconds, aside=aside) for one in others)
    return f'<ul class="alpa-best">{rows}</ul>' if rows else ""


def differences_html(plan: Plan, pinned: Plan | None) -> str:
    """The options in which the plan differs from the pinned one."""
    if pinned is None:
        return ""
    listed = "; ".join(map(str, differences(pinned, plan))) or "no difference in the settings"
    return f'<p class="alpa-question"><b>Against the pinned plan:</b> {escape(listed)}</p>'


def stages_html(plan: Plan) -> str:
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


def spare_words(peak_bytes: float, memory_bytes: float, *, is_tight: bool) -> tuple[str, str, str]:
    """(tone, verdict, room) of so many bytes on a device: ('good', 'fits', '3.6 GiB to spare') of what a framework can
    use of it; tight where the error of the prediction may exceed that."""
    spare = usable_bytes(memory_bytes) - peak_bytes
    if peak_bytes > memory_bytes:
        return "bad", "does not fit", f"{_rounded(peak_bytes - memory_bytes)} too much"
    room = f"{_rounded(spare)} to spare" if spare > 0 else f"{_rounded(-spare)} over what is usable"
    return ("warn", "tight", room) if is_tight or spare <= 0 else ("good", "fits", room)


def _rounded(size: float) -> str:
    scale, unit = units.bytes_axis(size)
    return f"{units.number(size / scale, 3)} {unit}"


def _stale(guess: float | None) -> str:
    """The class of what is not yet that of an estimated time."""
    return "" if guess is None else " alpa-stale"


def _figures(plan: Plan) -> dict[str, HeadlineFigure]:
    """The figures by their names, and 'rate', that of tokens, or samples, of one device."""
    figures = {figure.name: figure for figure in headline(plan)}
    rate = figures.get("tokens/s", figures["samples/s"])
    value = rate.value / plan.cluster.devices
    shown = f"{value:,.0f}" if value >= 100 else units.number(value, 3)
    return figures | {"rate": replace(rate, value=value, text=shown, beside=rate.name)}


def _fits(plan: Plan, memory: HeadlineFigure, change: str) -> str:
    full = text.fullest(plan)
    room = plan.device_of(full).memory_bytes
    tone, verdict, spare = spare_words(full.peak_bytes, room, is_tight=tight(plan, full.peak_bytes, room))
    hint = f"{memory.text} {_why(memory)}; a framework can use {units.bytes_(usable_bytes(room))} of a device"
    width = min(100.0 * full.peak_bytes / usable_bytes(room), 100.0)
    return (
        f'<span class="alpa-fact alpa-{tone}" title="{escape(hint)}"><b>{verdict}</b>'
        f'<i class="alpa-meter"><i style="width:{width:.1f}%"></i></i>{spare}{change}</span>'
    )


def _fact(number: str, what: str, hint: str, change: str = "") -> str:
    return f'<span class="alpa-fact" title="{escape(hint)}"><b>{escape(number)}</b> {escape(what)}{change}</span>'


def _change(figure: HeadlineFigure, pinned: HeadlineFigure, *, judged: bool) -> str:
    """Against the pinned plan."""
    difference, tone = against(figure, pinned)
    css, verdict = _TONES[tone if judged else 0]
    return (
        f' <em class="alpa-{css}" title="pinned: {escape(pinned.text)}">{difference or "±0"}'
        f"{f' {verdict}' if verdict else ''}</em>"
    )


def _why(figure: HeadlineFigure) -> str:
    return "; ".join(filter(None, (figure.why, figure.error)))


def _rate_words(figures: Mapping[str, HeadlineFigure]) -> str:
    names = ("samples/s", "tokens/s", "device-hours")
    listed = (
        f"{f.text} {f.name}{f' for {f.beside}' if f.beside else ''}: {f.why}" for f in map(figures.get, names) if f
    )
    return "; ".join(listed)


def _error(plan: Plan) -> str:
    """'± 9 % · 312 runs like it', or why there is no error to say; '± 9 % · 312 runs · 93 % timed' where kernels were
    timed on the device."""
    band, share = band_of(plan, "seconds"), measured_share(plan)
    if share is not None:
        known = "no run like it" if band is None else f"{band.short} · {band.runs:,} runs"
        return f"{known} · {units.percent(share)} timed"
    if band is None:
        return plan.options.pipeline.mode or "no run like it was measured"
    return f"{band.short} · {band.runs:,} runs like it"


def _trust(plan: Plan) -> str:
    """What the error is that of, and how much of the time was measured on the device."""
    modelled = "No kernel was timed on this device, as alpa-explore profile does: the times of all are modelled."
    return f"{plan_bands_sentence(plan)} {measured_sentence(plan) or modelled}"


def _layout_row(layouts: Layouts, priced: PricedLayout, plan_seconds: float | None, *, aside: bool) -> str:
    """`plan_seconds` is None where the plan is not to be compared."""
    gain = 0.0 if plan_seconds is None else priced.seconds / plan_seconds - 1.0
    tone = "" if abs(gain) < SMALL else "better" if gain < 0 else "worse"
    change = "" if plan_seconds is None else change_text(gain)
    room = layouts.cluster.device.memory_bytes
    css, verdict, spare = spare_words(priced.bytes, room, is_tight=priced.tight)
    rank, press, hint = layouts.rank(priced), "Open", "Plan this layout, and show it"
    if aside:
        press, hint = "Compare", "Plan this layout, and compare; this plan stays"
    return (
        f'<li><b class="alpa-{tone}">{change}</b><span title="{escape(priced.words)}">{escape(priced.words)}</span>'
        f'<span>{units.seconds(priced.seconds)}</span><span class="alpa-{css}">{verdict}</span><span>{spare}</span>'
        f'<button type="button" data-alpa-key="{aside_key("layout", rank) if aside else key(layout=rank)}" '
        f'title="{hint}">{press}</button></li>'
    )
