"""Other numbers of microbatches: T, samples a second, and what fills the fullest device, over B."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from alpa_explore import units
from alpa_explore.figures.style import OKABE_ITO, dress, hatching, ink, lines
from alpa_explore.planner.choose_microbatches import (
    microbatches_of,
    microbatches_sentence,
    microbatches_table,
    same_global_batch,
)
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import TriedMicrobatches

__all__ = ["microbatches_figure", "microbatches_sentence", "microbatches_table"]

_PARTS = (
    ("weights, gradients, optimizer state", "weight_bytes", OKABE_ITO[0], ""),
    ("activations held", "held_bytes", OKABE_ITO[1], "/"),
    ("workspace", "workspace_bytes", OKABE_ITO[2], "x"),
)
"""What fills a device: name, field, colour, hatching."""


def microbatches_figure(plan: Plan, theme: str = "light") -> go.Figure:
    """Three panels over the B that were looked at: T, samples a second, and the fullest device with its capacity as a
    line; the plan's own B is starred. A B at which nothing fits is crossed out, with what the nearest thing lacks.
    """
    found = microbatches_of(plan)
    names = [f"{t.num_microbatches:,}" for t in found]
    texts = [_hover(t) for t in found]
    figure = make_subplots(
        rows=3,
        cols=1,
        shared_xaxes=True,
        row_heights=[0.3, 0.3, 0.4],
        vertical_spacing=0.05,
    )
    fitting = [t.iteration_seconds for t in found if t.iteration_seconds is not None]
    scale, second = units.seconds_axis(max(fitting, default=1.0))
    times = [None if t.iteration_seconds is None else t.iteration_seconds / scale for t in found]
    rates = [None if t.iteration_seconds is None else t.samples_per_second for t in found]
    for row, (name, values) in enumerate((("T", times), ("samples a second", rates)), start=1):
        figure.add_trace(
            go.Scatter(
                x=names,
                y=values,
                name=name,
                mode="lines+markers",
                hovertext=texts,
                hoverinfo="text",
                showlegend=False,
                line={"color": ink(theme), "width": 2},
                marker={
                    "symbol": ["star" if _own(plan, t) else "circle" for t in found],
                    "size": [18 if _own(plan, t) else 8 for t in found],
                    "color": [OKABE_ITO[0] if _own(plan, t) else ink(theme) for t in found],
                    "line": {"color": ink(theme), "width": 1},
                },
            ),
            row=row,
            col=1,
        )
    _memory(figure, plan, found, names, texts, theme)
    batch = f"{plan.global_batch:,} samples in all"
    sizes = batch if same_global_batch(found) else f"{plan.model.samples:,} samples in each"
    figure.update_yaxes(title=f"T ({second})", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title="samples/s", rangemode="tozero", row=2, col=1)
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=names)
    figure.update_xaxes(title=f"B, the number of microbatches ({sizes})", row=3, col=1)
    return dress(figure, microbatches_sentence(plan, found), theme=theme, height=640, barmode="stack", bargap=0.3)


def _memory(
    figure: go.Figure,
    plan: Plan,
    found: Sequence[TriedMicrobatches],
    names: Sequence[str],
    texts: Sequence[str],
    theme: str,
) -> None:
    capacity = plan.cluster.device.memory_bytes
    needed = [t.peak_bytes if t.over_bytes is None else capacity + t.over_bytes for t in found]
    scale, byte = units.bytes_axis(max([capacity, *(n for n in needed if n is not None)]))
    for name, field, color, shape in _PARTS:
        figure.add_trace(
            go.Bar(
                x=names,
                y=[None if (size := getattr(t, field)) is None else size / scale for t in found],
                name=name,
                marker={"color": color, "pattern": hatching(shape)},
                hovertext=texts,
                hoverinfo="text",
            ),
            row=3,
            col=1,
        )
    short = [(n, t.over_bytes, text) for n, t, text in zip(names, found, texts, strict=True) if t.over_bytes]
    figure.add_trace(
        go.Scatter(
            x=[n for n, _, _ in short],
            y=[(capacity + over) / scale for _, over, _ in short],
            mode="markers",
            name="nothing fits: what is closest needs",
            hovertext=[text for *_, text in short],
            hoverinfo="text",
            marker={"symbol": "x", "size": 11, "color": OKABE_ITO[5]},
            showlegend=bool(short),
        ),
        row=3,
        col=1,
    )
    figure.add_trace(
        go.Scatter(
            x=list(names),
            y=[capacity / scale] * len(names),
            mode="lines",
            name="memory of a device",
            line={"color": ink(theme), "dash": "dash", "width": 1},
            hoverinfo="skip",
        ),
        row=3,
        col=1,
    )
    figure.update_yaxes(title=f"fullest device ({byte})", rangemode="tozero", row=3, col=1)


def _own(plan: Plan, one: TriedMicrobatches) -> bool:
    return one.num_microbatches == plan.options.num_microbatches


def _hover(one: TriedMicrobatches) -> str:
    head = f"<b>B = {one.num_microbatches:,}</b> microbatches of {one.samples:,} samples"
    if one.iteration_seconds is None or one.peak_bytes is None:
        over = "" if one.over_bytes is None else f": the closest is {units.bytes_(one.over_bytes)} over"
        return lines(head, f"no plan fits in memory{over}")
    parts = [f"{name} {units.bytes_(getattr(one, field))}" for name, field, _, _ in _PARTS]
    return lines(
        head,
        f"T {units.seconds(one.iteration_seconds)}, {one.samples_per_second:,.4g} samples/s",
        f"{one.stages} stages; on a device of stage {one.fullest_stage}: {units.bytes_(one.peak_bytes)}",
        *parts,
    )
