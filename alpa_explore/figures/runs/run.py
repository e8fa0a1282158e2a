"""A run beside its prediction: the seconds of the tasks of every stage, and the memory of every rank."""

from statistics import fmean
from typing import Any

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import Plots, bars, legend_below
from alpa_explore.figures.style import OKABE_ITO, Drawing, Trace, lines, with_theme
from alpa_explore.runtime.measured import Measured, MeasuredTask

_MEANS = (
    "predicted_seconds",
    "measured_seconds",
    "predicted_collective_seconds",
    "measured_collective_seconds",
    "predicted_send_seconds",
    "measured_receive_seconds",
)
_COLUMNS = (
    "of",
    "stage",
    "predicted_seconds",
    "measured_seconds",
    "ratio",
    "predicted_collective_seconds",
    "measured_collective_seconds",
    "measured_receive_seconds",
    "predicted_peak_bytes",
    "measured_peak_bytes",
)
"""Columns of `run_rows`."""


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
    names = ("rank", "submesh", "predicted_peak_bytes", "measured_peak_bytes")
    return [{name: getattr(rank, name) for name in names} for rank in measured.ranks]


def run_rows(measured: Measured) -> list[dict[str, Any]]:
    """`run_table` and `ranks_table` as one table: what the figure shows."""
    tasks = [{"of": f"{row['count']} × {row['tasks']}", **row} for row in run_table(measured)]
    ranks = [
        {
            "of": f"rank {row['rank']}",
            "stage": row["submesh"],
            **row,
            "ratio": row["measured_peak_bytes"] / row["predicted_peak_bytes"],
        }
        for row in ranks_table(measured)
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
    for which, color in (("predicted", OKABE_ITO[1]), ("measured", OKABE_ITO[0])):
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
    for which, color in (("predicted", OKABE_ITO[1]), ("measured", OKABE_ITO[0])):
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
    return lines(
        f"<b>{row['tasks']}</b>, {row['count']} tasks",
        f"predicted {units.seconds(row['predicted_seconds'])}, of which collectives "
        f"{units.seconds(row['predicted_collective_seconds'])}",
        f"measured {units.seconds(row['measured_seconds'])}, of which collectives "
        f"{units.seconds(row['measured_collective_seconds'])}",
        f"waiting for other stages {units.seconds(row['measured_receive_seconds'])}",
    )
