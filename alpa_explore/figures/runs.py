"""A run beside its prediction: the seconds of the tasks of every stage, and the memory of every rank."""

from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import Plots, bars, legend_below, line
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, faint, ink, lines, safe, with_theme
from alpa_explore.plans.iteration_time import iteration_time
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.iteration import iteration_parts, sends_share
from alpa_explore.plans.report.tables import row_of
from alpa_explore.runtime.measured import Measured, MeasuredTask
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
    expected = units.seconds(predicted_seconds)
    looks |= {
        "hover": [
            f"step {s.step + 1}<br>loss {s.loss:.6g}<br>{units.seconds(s.seconds)}, predicted {expected}" for s in shown
        ]
    }
    marker = {"symbol": ["circle-open" if s.step == 0 else "circle" for s in shown], "size": 7}
    ends, hover = [0.5, total + 0.5], f"predicted: {expected}"
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
    predicted = predicted_seconds
    return [
        {"step": s.step + 1, "loss": s.loss, "measured_seconds": s.seconds, "predicted_seconds": predicted}
        | {"ratio": s.seconds / predicted if predicted else None}
        for s in steps
    ]


def steps_sentence(plan: Plan, steps: Sequence[StepReport], total: int, predicted_seconds: float) -> str:
    """The progress of the run, the change of the loss, and a typical step beside the prediction."""
    expected, parts = units.seconds(predicted_seconds), _parts(plan, predicted_seconds)
    if not steps:
        return f"No step of {plan.model.name} is done yet; {expected} are predicted for each step{parts}."
    loss, took = f"the loss is {steps[-1].loss:.4g}", _typical(steps)
    if len(steps) > 1:
        loss = f"the loss went from {steps[0].loss:.4g} to {steps[-1].loss:.4g}"
    ratio = f", {took / predicted_seconds:.3g} × the" if predicted_seconds else "; the"
    return (
        f"{steps[-1].step + 1:,} of {total:,} steps of {plan.model.name} done: {loss}, and a step takes "
        f"{units.seconds(took)}{ratio} {expected} predicted for {plan.cluster.device_name}{parts}."
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


_SIDES = {"predicted": OKABE_ITO[1], "measured": OKABE_ITO[0]}
_MEANS = (
    "predicted_seconds measured_seconds predicted_collective_seconds measured_collective_seconds "
    "predicted_send_seconds measured_receive_seconds"
).split()
_COLUMNS = (
    "of stage predicted_seconds measured_seconds ratio predicted_collective_seconds measured_collective_seconds "
    "measured_receive_seconds predicted_peak_bytes measured_peak_bytes"
).split()
"""Of `run_rows`."""


def run_table(measured: Measured) -> list[dict[str, Any]]:
    """A row for the tasks of one kind of a stage, means over microbatches; the ratio is measured over predicted."""
    groups: dict[str, list[MeasuredTask]] = {}
    for task in measured.tasks:
        groups.setdefault(f"{task.stage}{task.action}", []).append(task)
    ordered = sorted(groups.items(), key=lambda item: (item[1][0].stage, "FBIWU".index(item[1][0].action)))
    rows = []
    for name, tasks in ordered:
        means = {field: fmean(getattr(task, field) for task in tasks) for field in _MEANS}
        predicted = means["predicted_seconds"]
        row = {"tasks": name, "stage": tasks[0].stage, "action": tasks[0].action, "count": len(tasks)}
        rows.append(row | means | {"ratio": means["measured_seconds"] / predicted if predicted else None})
    return rows


def ranks_table(measured: Measured) -> list[dict[str, Any]]:
    """A row for the memory of every rank."""
    return [row_of(rank, "rank submesh predicted_peak_bytes measured_peak_bytes") for rank in measured.ranks]


def run_rows(measured: Measured) -> list[dict[str, Any]]:
    """`run_table` and `ranks_table` as one table: what the figure shows."""
    tasks = [{"of": f"{row['count']} × {row['tasks']}", **row} for row in run_table(measured)]
    ranks = [
        {"of": f"rank {r['rank']}", "stage": r["submesh"], **r}
        | {"ratio": r["measured_peak_bytes"] / r["predicted_peak_bytes"]}
        for r in ranks_table(measured)
    ]
    return [{name: row.get(name) for name in _COLUMNS} for row in (*tasks, *ranks)]


@with_theme
def run_figure(measured: Measured) -> Drawing:
    """Left, two bars for the tasks of each stage, predicted and measured, in computing and collectives; the time spent
    waiting for other stages is added to the measured one. Right, two bars for the memory of each rank."""
    titles = ("a task of each stage: F forward, B backward (its halves I, W), U update", "peak memory of a rank")
    figure, rows = Plots(column_widths=[0.64, 0.36], spacing=(0.1, 0.0), titles=titles), run_table(measured)
    longest = max(max(r["predicted_seconds"], r["measured_seconds"] + r["measured_receive_seconds"]) for r in rows)
    scale, unit = units.seconds_axis(longest)
    looks = {"hover": [_hover(r) for r in rows], "keys": [key(stage=r["stage"]) for r in rows]}
    for which, color in _SIDES.items():
        collectives = [r[f"{which}_collective_seconds"] for r in rows]
        computing = [max(r[f"{which}_seconds"] - c, 0.0) for r, c in zip(rows, collectives, strict=True)]
        parts = [("computing", color, "", computing), ("collectives", color, "x", collectives)]
        if which == "measured":
            parts.append(("waiting for stages", OKABE_ITO[7], "/", [r["measured_receive_seconds"] for r in rows]))
        for name, own, shape, seconds in parts:
            x, y = [r["tasks"] for r in rows], [s / scale for s in seconds]
            figure.add(bars(x, y, own, shape, name=f"{which}: {name}", offsetgroup=which, **looks))
    figure.y(1, 1, title=unit)
    ranks = ranks_table(measured)
    scale, unit = units.bytes_axis(max(max(r["predicted_peak_bytes"], r["measured_peak_bytes"]) for r in ranks))
    keys = [key(stage=r["submesh"], device=r["rank"]) for r in ranks]
    for which, color in _SIDES.items():
        peaks = [row[f"{which}_peak_bytes"] for row in ranks]
        hover = [f"{which}: {units.bytes_(peak)}" for peak in peaks]
        about: Trace = {"name": f"{which}: memory", "offsetgroup": which, "hover": hover, "keys": keys, "listed": False}
        figure.add(bars([str(r["rank"]) for r in ranks], [peak / scale for peak in peaks], color, **about), col=2)
    figure.y(1, 2, title=unit)
    figure.x(type="category")
    figure.x(1, 2, title="rank")
    layout = {"barmode": "stack", "bargap": 0.3, "legend": legend_below(0.14, 1, traceorder=None), "margin": {"b": 110}}
    return figure.figure(run_sentence(measured), height=420, **layout)


def run_sentence(measured: Measured) -> str:
    """The measured time of an iteration, and its ratio to the predicted one."""
    took, predicted = measured.measured_iteration_seconds, measured.predicted_iteration_seconds
    planned = f" for {measured.planned_device}" if measured.planned_device else ""
    sends = measured.predicted_sends_seconds
    if sends >= tuning.NOTICEABLE_SHARE * predicted:
        planned += f", {units.seconds(sends)} of them sends between stages"
    return (
        f"An iteration of {measured.model} under {measured.schedule} on {measured.device} took {units.seconds(took)}, "
        f"{took / predicted:.3g} × the {units.seconds(predicted)} that were predicted{planned}."
    )


def _hover(row: dict[str, Any]) -> str:
    text = {name: units.seconds(row[name]) for name in _MEANS}
    return lines(
        f"<b>{row['tasks']}</b>, {row['count']} tasks",
        *(f"{of} {text[f'{of}_seconds']}, of which collectives {text[f'{of}_collective_seconds']}" for of in _SIDES),
        f"waiting for other stages {text['measured_receive_seconds']}",
    )
