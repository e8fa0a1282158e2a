"""Why a plan takes as long as it does: the parts of its time, what limits it, and what single changes would save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import HOVER_TEXT, OKABE_ITO, dress, faint, hatching, ink, lines, safe
from alpa_explore.figures.time_bars import time_bars
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row
from alpa_explore.questions.explain import (
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


def why_figure(plan: Plan, theme: str = "light", *, tried: Sequence[Plan] = ()) -> go.Figure:
    """Above, the parts of T for each stage; below, the cost of each limit, and what single changes save or cost.

    `tried` are other plans: those that differ from this one in a single setting count as changes too.
    """
    explanation = _Explanation.of(plan, tried)
    stages = 30 * len(explanation.times) + 20
    below = 34 * max(3, min(tuning.WHY_BARS, max(len(explanation.limits), len(explanation.changes))))
    figure = make_subplots(
        rows=2,
        cols=2,
        specs=[[{"colspan": 2}, None], [{}, {}]],
        row_heights=[stages, below],
        vertical_spacing=90 / (stages + below + 90),
        horizontal_spacing=0.26,
        subplot_titles=("", "without this limit T would be shorter by", "this change shortens the time of a sample by"),
    )
    figure.update_annotations(font_size=13)
    _times(figure, plan, explanation.times, theme)
    _limits(figure, explanation.limits, theme)
    _changes(figure, explanation.changes, theme)
    height = stages + below + 90 + 150
    figure = dress(figure, _sentence(plan, explanation), theme=theme, height=height, barmode="stack", bargap=0.3)
    return figure.update_layout(margin={"l": 210}, legend={"traceorder": "normal"})


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
    shares = sorted(_shares(plan, explanation.times).items(), key=lambda part: -part[1])
    noticeable = [(name, share) for name, share in shares[:3] if share >= tuning.NOTICEABLE_SHARE]
    largest = ", ".join(f"{name} {units.percent(share)}" for name, share in noticeable)
    # Free computing would make every plan faster: the next limit says more.
    others = (limit for limit in explanation.limits if limit.name not in (COMPUTING, UNKNOWN))
    binding = next((limit for limit in others if limit.gain >= tuning.NOTICEABLE_SHARE), None)
    limiting = "nothing but computing limits the plan"
    if binding is not None:
        shorter = units.percent(binding.gain)
        limiting = f"besides computing, the largest limit is {binding.name}: without it T would be {shorter} shorter"
    memory = next((limit for limit in explanation.limits if limit.name == "memory of a device"), None)
    if binding is not None and memory is not None and memory is not binding:
        free = memory.gain < tuning.NOTICEABLE_SHARE
        limiting += "; memory is no limit" if free else f"; more memory could save {units.percent(memory.gain)}"
    return f"Device time: {largest}. {limiting[0].upper()}{limiting[1:]}. {_advice(plan, explanation.changes)}"


def _shares(plan: Plan, times: Sequence[StageTime]) -> dict[str, float]:
    """Part -> its share of the time of all devices."""
    return {name: seconds / plan.predicted.iteration_seconds for name, seconds in mean_parts(times).items()}


def _advice(plan: Plan, tried_changes: Sequence[Change]) -> str:
    better = [c for c in tried_changes if c.gain >= tuning.NOTICEABLE_SHARE and not c.hardware]
    if not better:
        return "No single change that was tried saves time."
    best = better[0]
    batch = ", with a batch larger by the same factor" if best.plan.global_batch > plan.global_batch else ""
    return f"The best single change tried: {best.name}{batch}, {units.percent(best.gain)} less time a sample."


def _times(figure: go.Figure, plan: Plan, times: Sequence[StageTime], theme: str) -> None:
    scale, unit = units.seconds_axis(plan.predicted.iteration_seconds)
    rows = {f"stage {time.stage}": dict(time.parts) for time in times}
    keys = [key(stage=time.stage) for time in times]
    for bar in time_bars(rows, scale=scale, theme=theme, of="an iteration", keys=keys):
        figure.add_trace(bar, row=1, col=1)
    figure.update_xaxes(title=f"an iteration of a device ({unit})", row=1, col=1, zeroline=False)
    figure.update_yaxes(autorange="reversed", row=1, col=1)


def _limits(figure: go.Figure, all_limits: Sequence[Limit], theme: str) -> None:
    shown = all_limits[: tuning.WHY_BARS]
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
    )


def _changes(figure: go.Figure, all_changes: Sequence[Change], theme: str) -> None:
    shown = all_changes[: tuning.WHY_BARS]
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
            )
            for c in shown
        ],
    )


def _gain_text(gain: float) -> str:
    return units.percent(gain).replace("-", "−") if abs(gain) >= tuning.NOTICEABLE_SHARE else "0 %"


def _bars(
    figure: go.Figure,
    theme: str,
    column: int,
    names: Sequence[str],
    gains: Sequence[float],
    color: str,
    texts: Sequence[str],
) -> None:
    figure.add_trace(
        go.Bar(
            orientation="h",
            y=list(names),
            x=[100 * gain for gain in gains],
            showlegend=False,
            cliponaxis=False,
            marker={"color": [color if gain > 0 else faint(theme) for gain in gains], "pattern": hatching("")},
            text=[_gain_text(gain) for gain in gains],
            textposition="outside",
            textfont={"color": ink(theme)},
            hovertext=list(texts),
            hovertemplate=HOVER_TEXT,
            name=("limits", "changes")[column - 1],
        ),
        row=2,
        col=column,
    )
    largest, least = 100 * max([*gains, 0.01]), 100 * min([*gains, 0.0])
    text_room = 0.35 * (largest - least)
    low = least - (2 * text_room if least else 0)
    figure.update_xaxes(title="%", range=[low, largest + text_room], row=2, col=column)
    figure.update_yaxes(autorange="reversed", automargin=True, row=2, col=column)
