"""A run in progress: the loss of each step, and its seconds beside the predicted ones."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.style import OKABE_ITO, dress, faint, ink, safe
from alpa_explore.plans.iteration_time import iteration_time
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.iteration import iteration_parts, sends_share
from alpa_explore.runtime.reports import StepReport


def steps_figure(
    plan: Plan, *, steps: Sequence[StepReport], total: int, predicted_seconds: float, theme: str = "light"
) -> go.Figure:
    """Left, the loss over the steps; right, their seconds, with the predicted seconds as a dashed line.

    The run has `total` steps: the axis has its full length from the start, so that it shows the progress.
    """
    every = max(-(-len(steps) // tuning.RUN_STEPS), 1)
    shown = [s for s in steps if s.step % every == 0]
    figure = make_subplots(
        rows=1,
        cols=2,
        horizontal_spacing=0.1,
        column_widths=[0.5, 0.5],
        subplot_titles=(
            "loss, mean of the microbatches",
            f"time of a step (dashed: predicted for {safe(plan.cluster.device_name)})",
        ),
    )
    figure.update_annotations(font_size=13)
    scale, unit = units.seconds_axis(max([predicted_seconds, *(s.seconds for s in shown)]))
    _curves(figure, shown, scale, predicted_seconds)
    figure.add_trace(_predicted_line(scale, predicted_seconds, total), row=1, col=2)
    ratio = _typical(steps) / predicted_seconds if steps and predicted_seconds else 1.0
    if not 1 / tuning.RUN_LINEAR_RATIO <= ratio <= tuning.RUN_LINEAR_RATIO:
        figure.update_yaxes(type="log", dtick=1, row=1, col=2)
        unit += ", logarithmic"
    else:
        figure.update_yaxes(rangemode="tozero", row=1, col=2)
    figure.update_yaxes(title="loss", row=1, col=1).update_yaxes(title=unit, row=1, col=2)
    figure.update_xaxes(title="step" if every == 1 else f"step (one of {every} is drawn)", range=[0.5, total + 0.5])
    for column in (1, 2):
        figure.update_xaxes(tickformat=",d", linecolor=faint(theme), tickfont_color=ink(theme), row=1, col=column)
    return dress(
        figure, steps_sentence(plan, steps, total, predicted_seconds), theme=theme, height=420, showlegend=False
    )


def _curves(figure: go.Figure, shown: Sequence[StepReport], scale: float, predicted_seconds: float) -> None:
    """Loss and measured seconds of the steps."""
    common = {
        "x": [s.step + 1 for s in shown],
        "mode": "lines+markers" if len(shown) <= 60 else "lines",
        "hovertext": [_hover(s, predicted_seconds) for s in shown],
        "hoverinfo": "text",
        "line": {"color": OKABE_ITO[0]},
    }
    figure.add_trace(go.Scatter(y=[s.loss for s in shown], name="loss", **common), row=1, col=1)
    figure.add_trace(
        go.Scatter(
            y=[s.seconds / scale for s in shown],
            name="measured",
            marker={"symbol": ["circle-open" if s.step == 0 else "circle" for s in shown], "size": 7},
            **common,
        ),
        row=1,
        col=2,
    )


def _predicted_line(scale: float, predicted_seconds: float, total: int) -> go.Scatter:
    return go.Scatter(
        x=[0.5, total + 0.5],
        y=[predicted_seconds / scale] * 2,
        mode="lines",
        name="predicted",
        hoverinfo="text",
        hovertext=f"predicted: {units.seconds(predicted_seconds)}",
        line={"color": OKABE_ITO[1], "dash": "dash", "width": 3},
    )


def steps_table(steps: Sequence[StepReport], predicted_seconds: float) -> list[dict[str, Any]]:
    """A row for each step; the ratio is measured over predicted."""
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
    """The progress of the run, the change of the loss, and a typical step beside the prediction."""
    if not steps:
        return (
            f"No step of {plan.model.name} is done yet; {units.seconds(predicted_seconds)} are predicted for each step"
            f"{_parts(plan, predicted_seconds)}."
        )
    loss = f"the loss is {steps[-1].loss:.4g}"
    if len(steps) > 1:
        loss = f"the loss went from {steps[0].loss:.4g} to {steps[-1].loss:.4g}"
    took = _typical(steps)
    ratio = f", {took / predicted_seconds:.3g} × the" if predicted_seconds else "; the"
    return (
        f"{steps[-1].step + 1:,} of {total:,} steps of {plan.model.name} done: {loss}, and a step takes "
        f"{units.seconds(took)}{ratio} {units.seconds(predicted_seconds)} predicted for {plan.cluster.device_name}"
        f"{_parts(plan, predicted_seconds)}."
    )


def _parts(plan: Plan, predicted_seconds: float) -> str:
    """': T + sends', where the prediction is more than T; '' for another prediction than that of the plan."""
    time = iteration_time(plan)
    if time is None or time.simulated_seconds != predicted_seconds or not sends_share(time):
        return ""
    return f": {iteration_parts(time)}"


def _typical(steps: Sequence[StepReport]) -> float:
    """The median seconds; without the first step, in which memory is allocated, where there are others."""
    return median([s.seconds for s in steps[1:]] or [s.seconds for s in steps])


def _hover(step: StepReport, predicted_seconds: float) -> str:
    return (
        f"step {step.step + 1}<br>loss {step.loss:.6g}<br>{units.seconds(step.seconds)}, "
        f"predicted {units.seconds(predicted_seconds)}"
    )
