"""A run as it goes: the loss of each step, and its seconds beside what was predicted."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures.style import OKABE_ITO, dress, faint, ink, safe
from alpa_explore.plans.plan import Plan
from alpa_explore.runtime.reports import StepReport

MOST_POINTS = 1000
"""Of a longer run every k-th step is drawn; the table has all."""
FAR = 10.0
"""Beyond this ratio of measured and predicted the axis of seconds is logarithmic: on a linear one one of them is 0."""


def steps_figure(
    plan: Plan, *, steps: Sequence[StepReport], total: int, predicted_seconds: float, theme: str = "light"
) -> go.Figure:
    """Left the loss over the steps, right their seconds, with the predicted seconds as a line across.

    `total` steps were asked for: the axis is as long from the start, so that the curve shows how far the run is.
    """
    every = -(-len(steps) // MOST_POINTS)
    shown = [s for s in steps if s.step % max(every, 1) == 0]
    figure = make_subplots(
        rows=1,
        cols=2,
        horizontal_spacing=0.1,
        column_widths=[0.5, 0.5],
        subplot_titles=(
            "loss, mean of the microbatches",
            f"time of a step (dashed: predicted for {safe(plan.cluster.device.name)})",
        ),
    )
    figure.update_annotations(font_size=13)
    numbers = [s.step + 1 for s in shown]
    hover = [_hover(s, predicted_seconds) for s in shown]
    mode = "lines+markers" if len(shown) <= 60 else "lines"
    common = {"x": numbers, "mode": mode, "hovertext": hover, "hoverinfo": "text"}
    figure.add_trace(
        go.Scatter(y=[s.loss for s in shown], name="loss", line={"color": OKABE_ITO[0]}, **common),
        row=1,
        col=1,
    )
    slowest = max([predicted_seconds, *(s.seconds for s in shown)])
    scale, unit = units.seconds_axis(slowest)
    figure.add_trace(
        go.Scatter(
            y=[s.seconds / scale for s in shown],
            name="measured",
            line={"color": OKABE_ITO[0]},
            marker={"symbol": ["circle-open" if s.step == 0 else "circle" for s in shown], "size": 7},
            **common,
        ),
        row=1,
        col=2,
    )
    figure.add_trace(
        go.Scatter(
            x=[0.5, total + 0.5],
            y=[predicted_seconds / scale] * 2,
            mode="lines",
            name="predicted",
            hoverinfo="text",
            hovertext=f"predicted: {units.seconds(predicted_seconds)}",
            line={"color": OKABE_ITO[1], "dash": "dash", "width": 3},
        ),
        row=1,
        col=2,
    )
    apart = _typical(steps) / predicted_seconds if steps and predicted_seconds else 1.0
    if not 1 / FAR <= apart <= FAR:
        figure.update_yaxes(type="log", dtick=1, row=1, col=2)
        unit += ", logarithmic"
    else:
        figure.update_yaxes(rangemode="tozero", row=1, col=2)
    figure.update_yaxes(title="loss", row=1, col=1).update_yaxes(title=unit, row=1, col=2)
    figure.update_xaxes(title="step" if every <= 1 else f"step (one of {every} is drawn)", range=[0.5, total + 0.5])
    for column in (1, 2):
        figure.update_xaxes(tickformat=",d", linecolor=faint(theme), tickfont_color=ink(theme), row=1, col=column)
    return dress(
        figure, steps_sentence(plan, steps, total, predicted_seconds), theme=theme, height=420, showlegend=False
    )


def steps_table(steps: Sequence[StepReport], predicted_seconds: float) -> list[dict[str, Any]]:
    """A row a step; the ratio is measured over predicted."""
    return [
        {
            "step": s.step + 1,
            "loss": s.loss,
            "measured_seconds": s.seconds,
            "predicted_seconds": predicted_seconds,
            "ratio": s.seconds / predicted_seconds if predicted_seconds else None,
        }
        for s in steps
    ]


def steps_sentence(plan: Plan, steps: Sequence[StepReport], total: int, predicted_seconds: float) -> str:
    """How far the run is, how the loss moved, and how a step compares with the prediction."""
    if not steps:
        return f"No step of {plan.model.name} is done yet; {units.seconds(predicted_seconds)} are predicted for each."
    loss = f"the loss is {steps[-1].loss:.4g}"
    if len(steps) > 1:
        loss = f"the loss went from {steps[0].loss:.4g} to {steps[-1].loss:.4g}"
    took = _typical(steps)
    ratio = f", {took / predicted_seconds:.3g} × the" if predicted_seconds else "; the"
    return (
        f"{len(steps):,} of {total:,} steps of {plan.model.name} done: {loss}, and a step takes "
        f"{units.seconds(took)}{ratio} {units.seconds(predicted_seconds)} predicted for {plan.cluster.device.name}."
    )


def _typical(steps: Sequence[StepReport]) -> float:
    """The median; of several steps the first, in which memory is taken, is left out."""
    return median([s.seconds for s in steps[1:]] or [s.seconds for s in steps])


def _hover(step: StepReport, predicted_seconds: float) -> str:
    return (
        f"step {step.step + 1}<br>loss {step.loss:.6g}<br>{units.seconds(step.seconds)}, "
        f"predicted {units.seconds(predicted_seconds)}"
    )
