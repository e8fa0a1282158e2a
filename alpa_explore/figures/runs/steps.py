"""A run in progress: the loss of each step, and its seconds beside the predicted ones."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.marks import Plots, line
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, faint, ink, safe, with_theme
from alpa_explore.plans.iteration_time import iteration_time
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.iteration import iteration_parts, sends_share
from alpa_explore.runtime.reports import StepReport


@with_theme
def steps_figure(plan: Plan, *, steps: Sequence[StepReport], total: int, predicted_seconds: float) -> Drawing:
    """Left, the loss over the steps; right, their seconds, with the predicted seconds as a dashed line.

    The run has `total` steps: the axis has its full length from the start, so that it shows the progress.
    """
    every = max(-(-len(steps) // tuning.RUN_STEPS), 1)
    shown = [s for s in steps if s.step % every == 0]
    of_time = f"time of a step (dashed: predicted for {safe(plan.cluster.device_name)})"
    titles = ("loss, mean of the microbatches", of_time)
    figure = Plots(column_widths=(0.5, 0.5), spacing=(0.1, 0.0), titles=titles)
    scale, unit = units.seconds_axis(max([predicted_seconds, *(s.seconds for s in shown)]))
    x, losses, seconds = [s.step + 1 for s in shown], [s.loss for s in shown], [s.seconds / scale for s in shown]
    looks: Trace = {"mode": "lines+markers" if len(shown) <= 60 else "lines"}
    looks |= {"hover": [_hover(s, predicted_seconds) for s in shown]}
    marker = {"symbol": ["circle-open" if s.step == 0 else "circle" for s in shown], "size": 7}
    ends, hover = [0.5, total + 0.5], f"predicted: {units.seconds(predicted_seconds)}"
    figure.add(line(x, losses, OKABE_ITO[0], name="loss", **looks))
    figure.add(
        line(x, seconds, OKABE_ITO[0], name="measured", marker=marker, **looks),
        line(ends, [predicted_seconds / scale] * 2, OKABE_ITO[1], 3, "dash", name="predicted", hover=hover),
        col=2,
    )
    ratio = _typical(steps) / predicted_seconds if steps and predicted_seconds else 1.0
    if not 1 / tuning.RUN_LINEAR_RATIO <= ratio <= tuning.RUN_LINEAR_RATIO:
        figure.y(1, 2, title=f"{unit}, logarithmic", type="log", dtick=1)
    else:
        figure.y(1, 2, title=unit, rangemode="tozero")
    figure.y(1, 1, title="loss")
    title = "step" if every == 1 else f"step (one of {every} is drawn)"
    looks = {"tickformat": ",d", "linecolor": faint, "tickfont": {"color": ink}}
    figure.x(title=title, span=(0.5, total + 0.5), **looks)
    sentence = steps_sentence(plan, steps, total, predicted_seconds)
    return figure.figure(sentence, height=420, showlegend=False)


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
