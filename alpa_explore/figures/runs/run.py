"""A run beside its prediction: the seconds of the tasks of every stage, and the memory of every rank."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.keys import key
from alpa_explore.figures.style import CONFIG, OKABE_ITO, dress, hatching, lines
from alpa_explore.runtime.measured import Measured, MeasuredTask

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
    return [_task_row(name, tasks) for name, tasks in ordered]


def _task_row(name: str, tasks: Sequence[MeasuredTask]) -> dict[str, Any]:
    predicted, took = _mean(tasks, "predicted_seconds"), _mean(tasks, "measured_seconds")
    return {
        "tasks": name,
        "stage": tasks[0].stage,
        "action": tasks[0].action,
        "count": len(tasks),
        "predicted_seconds": predicted,
        "measured_seconds": took,
        "ratio": took / predicted if predicted else None,
        "predicted_collective_seconds": _mean(tasks, "predicted_collective_seconds"),
        "measured_collective_seconds": _mean(tasks, "measured_collective_seconds"),
        "predicted_send_seconds": _mean(tasks, "predicted_send_seconds"),
        "measured_receive_seconds": _mean(tasks, "measured_receive_seconds"),
    }


def ranks_table(measured: Measured) -> list[dict[str, Any]]:
    """A row for the memory of every rank."""
    return [
        {
            "rank": r.rank,
            "submesh": r.submesh,
            "predicted_peak_bytes": r.predicted_peak_bytes,
            "measured_peak_bytes": r.measured_peak_bytes,
        }
        for r in measured.ranks
    ]


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


def run_figure(measured: Measured, theme: str = "light") -> go.Figure:
    """Left, two bars for the tasks of each stage, predicted and measured, in computing and collectives; the time spent
    waiting for other stages is added to the measured one. Right, two bars for the memory of each rank."""
    figure = make_subplots(
        rows=1,
        cols=2,
        horizontal_spacing=0.1,
        column_widths=[0.64, 0.36],
        subplot_titles=(
            "a task of each stage: F forward, B backward (its halves I, W), U update",
            "peak memory of a rank",
        ),
    )
    figure.update_annotations(font_size=13)
    _task_bars(figure, run_table(measured))
    _memory_bars(figure, measured)
    figure = dress(figure, run_sentence(measured), theme=theme, height=420, barmode="stack", bargap=0.3)
    return figure.update_layout(legend={"y": -0.14, "yanchor": "top"}, margin={"b": 110})


def _task_bars(figure: go.Figure, rows: Sequence[dict[str, Any]]) -> None:
    longest = max(max(r["predicted_seconds"], r["measured_seconds"] + r["measured_receive_seconds"]) for r in rows)
    scale, unit = units.seconds_axis(longest)
    for name, which, color, shape, values in (
        ("predicted: computing", "predicted", OKABE_ITO[1], "", _computing(rows, "predicted")),
        ("predicted: collectives", "predicted", OKABE_ITO[1], "x", [r["predicted_collective_seconds"] for r in rows]),
        ("measured: computing", "measured", OKABE_ITO[0], "", _computing(rows, "measured")),
        ("measured: collectives", "measured", OKABE_ITO[0], "x", [r["measured_collective_seconds"] for r in rows]),
        ("measured: waiting for stages", "measured", OKABE_ITO[7], "/", [r["measured_receive_seconds"] for r in rows]),
    ):
        figure.add_trace(
            go.Bar(
                x=[r["tasks"] for r in rows],
                y=[v / scale for v in values],
                name=name,
                offsetgroup=which,
                marker={"color": color, "pattern": hatching(shape)},
                hovertext=[_hover(r) for r in rows],
                hoverinfo="text",
                customdata=[key(stage=r["stage"]) for r in rows],
            ),
            row=1,
            col=1,
        )
    figure.update_yaxes(title=unit, row=1, col=1)


def _memory_bars(figure: go.Figure, measured: Measured) -> None:
    largest = max(max(r.predicted_peak_bytes, r.measured_peak_bytes) for r in measured.ranks)
    scale, unit = units.bytes_axis(largest)
    for which, color in (("predicted", OKABE_ITO[1]), ("measured", OKABE_ITO[0])):
        peaks = [row[f"{which}_peak_bytes"] for row in ranks_table(measured)]
        figure.add_trace(
            go.Bar(
                x=[str(r.rank) for r in measured.ranks],
                y=[peak / scale for peak in peaks],
                offsetgroup=which,
                name=f"{which}: memory",
                marker={"color": color},
                showlegend=False,
                hovertext=[f"{which}: {units.bytes_(peak)}" for peak in peaks],
                hoverinfo="text",
                customdata=[key(stage=r.submesh, device=r.rank) for r in measured.ranks],
            ),
            row=1,
            col=2,
        )
    figure.update_yaxes(title=unit, row=1, col=2)
    figure.update_xaxes(type="category").update_xaxes(title="rank", row=1, col=2)


def run_html(measured: Measured, theme: str = "light") -> str:
    """The figure as one self-contained page."""
    page: str = run_figure(measured, theme).to_html(include_plotlyjs=True, full_html=True, config=CONFIG)
    return page


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


def _computing(rows: Sequence[dict[str, Any]], which: str) -> list[float]:
    return [max(r[f"{which}_seconds"] - r[f"{which}_collective_seconds"], 0.0) for r in rows]


def _hover(row: dict[str, Any]) -> str:
    return lines(
        f"<b>{row['tasks']}</b>, {row['count']} tasks",
        f"predicted {units.seconds(row['predicted_seconds'])}, of which collectives "
        f"{units.seconds(row['predicted_collective_seconds'])}",
        f"measured {units.seconds(row['measured_seconds'])}, of which collectives "
        f"{units.seconds(row['measured_collective_seconds'])}",
        f"waiting for other stages {units.seconds(row['measured_receive_seconds'])}",
    )


def _mean(tasks: Sequence[MeasuredTask], field: str) -> float:
    return fmean(getattr(task, field) for task in tasks)
