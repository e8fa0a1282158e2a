"""Why a plan takes as long as it does: the parts of its time, what limits it, and what single changes would save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import key
from alpa_explore.figures.placing import bar_texts
from alpa_explore.figures.plots import Plots
from alpa_explore.figures.style import HOVER_TEXT, OKABE_ITO, faint, layout_of, lines, safe
from alpa_explore.figures.time_bars import time_bars
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row
from alpa_explore.questions.explain import (
    COLLECTIVES,
    COMPUTE,
    COMPUTING,
    UNKNOWN,
    Change,
    Limit,
    StageTime,
    changes,
    limits,
    mean_parts,
    time_parts,
)

__all__ = ["why_figure", "why_sentence", "why_table"]

_STAGE, _BAR, _GAP = 24, 32, 92
"""Pixels of a stage, of a limit or change, and between the panels."""
_NAME_CHARACTERS = (21, 16)
"""In a line of a name beside a bar, on the left and on the right, where less room is left by the bars before."""


def why_figure(plan: Plan, theme: str = "light", *, tried: Sequence[Plan] = ()) -> go.Figure:
    """Above, the parts of T for each stage, and the same without compute on a scale of their own; below, the cost of
    each limit, and what single changes save or cost.

    `tried` are other plans: those that differ from this one in a single setting count as changes too.
    """
    explanation = _Explanation.of(plan, tried)
    shown = [limit for limit in explanation.limits if limit.name not in (COMPUTING, UNKNOWN)][: tuning.WHY_BARS]
    above = _STAGE * len(explanation.times)
    below = _BAR * max(3, min(tuning.WHY_BARS, max(len(shown), len(explanation.changes))))
    height = above + below + _GAP
    figure = Plots(
        [above, below],
        [0.42, 0.58],
        spacing=(0.2, _GAP / height),
        titles=("the whole iteration", "all but computing", "T would be shorter without", "less time a sample with"),
    )
    _times(figure, plan, explanation.times, theme)
    _limits(figure, shown, theme)
    _changes(figure, explanation.changes, tried, theme)
    layout = layout_of(_sentence(plan, explanation), theme=theme, height=height, barmode="stack", bargap=0.3)
    top = layout["margin"]["t"] + 14
    below_all = {"x": 0, "xanchor": "left", "y": -46 / height, "yanchor": "top", "traceorder": "normal"}
    return figure.figure(
        layout
        | {
            "height": height + top + 112,
            "margin": {"t": top, "l": 160, "r": 16, "b": 112},
            "legend": layout["legend"] | below_all,
            "meta": {"least_width": tuning.LABELLED_PIXELS},
        }
    )


def why_sentence(plan: Plan, *, tried: Sequence[Plan] = ()) -> str:
    """What the figure shows for this plan."""
    return _sentence(plan, _Explanation.of(plan, tried))


def why_table(plan: Plan, *, tried: Sequence[Plan] = ()) -> list[Row]:
    """The same as rows: parts of the time by stage, then limits (T without them), then changes (their T)."""
    total, explanation = plan.predicted.iteration_seconds, _Explanation.of(plan, tried)
    rows: list[Row] = [
        {
            "about": "time",
            "what": name,
            "stage": time.stage,
            "iteration_seconds": seconds,
            "share_fraction": seconds / total,
            "how": "of T, on each device of the stage",
        }
        for time in explanation.times
        for name, seconds in time.parts
    ]
    rows += [
        {
            "about": "limit",
            "what": limit.name,
            "stage": None,
            "iteration_seconds": limit.iteration_seconds,
            "share_fraction": limit.gain,
            "how": limit.how,
        }
        for limit in explanation.limits
    ]
    return rows + [
        {
            "about": "change",
            "what": change.name,
            "stage": None,
            "iteration_seconds": change.plan.predicted.iteration_seconds,
            "share_fraction": change.gain,
            "how": "planned; share of the time of a sample that is saved",
        }
        for change in explanation.changes
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Explanation:
    """What `questions.explain` computes for a plan; drawn, and summarised in the sentence."""

    times: tuple[StageTime, ...]
    limits: tuple[Limit, ...]
    changes: tuple[Change, ...]

    @staticmethod
    def of(plan: Plan, tried: Sequence[Plan]) -> _Explanation:
        return _Explanation(times=time_parts(plan), limits=limits(plan), changes=changes(plan, tried))


def _sentence(plan: Plan, explanation: _Explanation) -> str:
    return " ".join((_where(plan, explanation), _limit(explanation), _advice(plan, explanation.changes)))


def _where(plan: Plan, explanation: _Explanation) -> str:
    """'Devices spend 87.1 % of T on compute, 5.62 % on waits (bubble) and 5.12 % on collectives inside a node.'"""
    shares = sorted(_shares(plan, explanation.times).items(), key=lambda part: -part[1])
    named = [
        f"{units.percent(share)}{' of T' if not place else ''} on {name}"
        for place, (name, share) in enumerate(shares[:3])
        if share >= tuning.NOTICEABLE_SHARE
    ]
    return f"Devices spend {', '.join(named[:-1])}{' and ' if len(named) > 1 else ''}{named[-1]}."


def _limit(explanation: _Explanation) -> str:
    """What costs most besides computing (free computing would make every plan faster), and whether memory does."""
    others = (limit for limit in explanation.limits if limit.name not in (COMPUTING, UNKNOWN))
    binding = next((limit for limit in others if limit.gain >= tuning.NOTICEABLE_SHARE), None)
    if binding is None:
        return "Nothing but computing limits the plan."
    memory = next((limit for limit in explanation.limits if limit.name == "memory of a device"), None)
    more = ""
    if memory is not None and memory is not binding:
        free = memory.gain < tuning.NOTICEABLE_SHARE
        more = "; more memory would save nothing" if free else f"; more memory could save {units.percent(memory.gain)}"
    shorter = units.percent(binding.gain)
    return f"Besides computing, {binding.name} costs most: without it T would be {shorter} shorter{more}."


def _shares(plan: Plan, times: Sequence[StageTime]) -> dict[str, float]:
    """Part -> its share of the time of all devices; collectives are summed over the mesh axes."""
    shares: dict[str, float] = {}
    for name, seconds in mean_parts(times).items():
        part = name.partition(", axis ")[0] if name.startswith(COLLECTIVES) else name
        shares[part] = shares.get(part, 0.0) + seconds / plan.predicted.iteration_seconds
    return shares


def _advice(plan: Plan, tried_changes: Sequence[Change]) -> str:
    better = [c for c in tried_changes if c.gain >= tuning.NOTICEABLE_SHARE and not c.hardware]
    if not better:
        return "No single change that was tried saves time."
    best = better[0]
    batch = ", in a larger batch" if best.plan.global_batch > plan.global_batch else ""
    return f"The best single change tried: {best.name}, {units.percent(best.gain)} less time a sample{batch}."


def _times(figure: Plots, plan: Plan, times: Sequence[StageTime], theme: str) -> None:
    """The parts of each stage, and beside them all but computing, in percent of T and with their sum."""
    total = plan.predicted.iteration_seconds
    scale, unit = units.seconds_axis(total)
    rows = {f"stage {time.stage}": dict(time.parts) for time in times}
    keys = [key(stage=time.stage) for time in times]
    bars = time_bars(rows, scale=scale, theme=theme, of="an iteration", keys=keys)
    for bar in bars:
        figure.add_trace(bar, row=1, col=1)
    rest = [bar for bar in bars if bar["name"] not in (COMPUTE, UNKNOWN)]
    for bar in rest:
        share = bar | {"x": [100 * x * scale / total for x in bar["x"]], "showlegend": False}
        figure.add_trace(share, row=1, col=2)
    sums = [sum(of) for of in zip(*(bar["x"] for bar in rest), strict=True)]
    shares = [100 * x * scale / total for x in sums]
    figure.add_trace(
        bar_texts(shares, list(rows), [units.percent(x / 100) for x in shares], theme, place="middle right"),
        row=1,
        col=2,
    )
    figure.update_xaxes(title=f"{unit}", row=1, col=1, zeroline=False)
    figure.update_xaxes(title="% of T", range=[0, 1.2 * max([*shares, 0.01])], row=1, col=2, zeroline=False)
    figure.update_yaxes(autorange="reversed", row=1)


def _limits(figure: Plots, shown: Sequence[Limit], theme: str) -> None:
    _bars(
        figure,
        theme,
        1,
        [limit.name for limit in shown],
        [limit.gain for limit in shown],
        OKABE_ITO[1],
        [
            lines(f"<b>{safe(limit.name)}</b>", f"T without it {units.seconds(limit.iteration_seconds)}", limit.how)
            for limit in shown
        ],
        None,
    )


def _changes(figure: Plots, all_changes: Sequence[Change], tried: Sequence[Plan], theme: str) -> None:
    """A click on the bar of a plan of the history shows that plan."""
    shown = all_changes[: tuning.WHY_BARS]
    number = {id(plan): place for place, plan in enumerate(tried)}
    keys = [key(plan=number[id(c.plan)]) if id(c.plan) in number else "" for c in shown]
    _bars(
        figure,
        theme,
        2,
        [safe(c.name) for c in shown],
        [c.gain for c in shown],
        OKABE_ITO[2],
        [
            lines(
                f"<b>{safe(c.name)}</b>",
                f"T {units.seconds(c.plan.predicted.iteration_seconds)} for {c.plan.global_batch:,} samples",
                "needs other devices" if c.hardware else "",
                "click to show it" if own else "",
            )
            for c, own in zip(shown, keys, strict=True)
        ],
        keys,
    )


def _gain_text(gain: float) -> str:
    return units.percent(gain).replace("-", "−") if abs(gain) >= tuning.NOTICEABLE_SHARE else "0 %"


def _bars(
    figure: Plots,
    theme: str,
    column: int,
    names: Sequence[str],
    gains: Sequence[float],
    color: str,
    hover: Sequence[str],
    keys: Sequence[str] | None,
) -> None:
    characters = _NAME_CHARACTERS[column - 1]
    wrapped = [wrap(name, characters, break_on_hyphens=False, break_long_words=False) for name in names]
    shown = ["<br>".join(parts) for parts in wrapped]
    figure.add_trace(
        {
            "type": "bar",
            "orientation": "h",
            "y": shown,
            "x": [100 * gain for gain in gains],
            "showlegend": False,
            "marker": {"color": [color if gain > 0 else faint(theme) for gain in gains]},
            "customdata": keys,
            "hovertext": list(hover),
            "hovertemplate": HOVER_TEXT,
            "name": ("limits", "changes")[column - 1],
        },
        row=2,
        col=column,
    )
    ends = [max(0.0, 100 * gain) for gain in gains]
    figure.add_trace(
        bar_texts(ends, shown, [_gain_text(gain) for gain in gains], theme, place="middle right"), row=2, col=column
    )
    largest, least = max([*ends, 0.01]), 100 * min([*gains, 0.0])
    figure.update_xaxes(title="%", range=[1.05 * least, largest + 0.4 * (largest - least)], row=2, col=column)
    figure.update_yaxes(autorange="reversed", row=2, col=column)
