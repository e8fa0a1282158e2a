"""Operator clustering by Eq. 6 of Alpa (arXiv 2201.12023, §5.2), with a slider for delta.

    G(k, r) = min over i of max( G(i, r−1), C(i+1, k) ),   FLOP(i+1 … k) ≤ (1 + delta) · FLOP_total / L,   G(0, 0) = 0

The library runs the same recurrence over suffixes (`layering.dp`); `clustering_table` is the paper's, over prefixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.errors import LayeringError
from alpa_explore.figures.course.states import State, slider_figure
from alpa_explore.figures.style import HEAT, HOVER_TEXT, OKABE_ITO, hatching, ink, stage_color
from alpa_explore.graph import TrainingGraph
from alpa_explore.layering import Crossing, Layering, cluster_operators, crossing_bytes, crossings_of
from alpa_explore.layering.balance import flops_limit
from alpa_explore.numerics.arrays import Floats, Ints

_COLUMNS = 360
"""Columns of the drawn table; more are thinner than a pixel."""
_LIMIT_ROOM = 1.3
"""Layers to the left of the middle of the first one: the limit has its name there, beside the bars."""


def run_bytes(crossings: Sequence[Crossing], operators: int) -> Ints:
    """C of Eq. 6 as a table [start, stop]: bytes that operators start … stop−1 produce and later ones read."""
    changes = np.zeros((operators + 2, operators + 2), dtype=np.int64)
    for crossing in crossings:  # it counts where start ≤ producer < stop ≤ last reader
        producer, last = crossing.producer, crossing.readers[-1]
        changes[0, producer + 1] += crossing.bytes
        changes[producer + 1, producer + 1] -= crossing.bytes
        changes[0, last + 1] -= crossing.bytes
        changes[producer + 1, last + 1] += crossing.bytes
    return changes.cumsum(axis=0).cumsum(axis=1)[:-1, :-1]


def clustering_table(flops: Sequence[int], cost: Ints, num_layers: int, delta: float) -> Floats:
    """G(k, r) for r = 0 … L and k = 0 … K, shape [L + 1, K + 1]; inf where no clustering keeps the FLOP limit. `cost`
    is C as a table [start, stop] (`run_bytes`)."""
    operators = len(flops)
    before = np.concatenate(([0], np.cumsum(flops)))
    limit = flops_limit(int(before[-1]), num_layers, delta)
    table = np.full((num_layers + 1, operators + 1), np.inf)
    table[0, 0] = 0.0  # the base case: no operators, no layers
    for r in range(1, num_layers + 1):
        for k in range(1, operators + 1):
            first = int(np.searchsorted(before, before[k] - limit, side="left"))
            starts = np.arange(first, k)
            if starts.size:
                table[r, k] = np.maximum(table[r - 1, starts], cost[starts, k]).min()
    return table


def clustering_figure(
    graph: TrainingGraph, num_layers: int, deltas: Sequence[float], *, start: int = 0, theme: str = "light"
) -> go.Figure:
    """Above, the bytes that a cut behind each operator would send, the layers and their cuts; in the middle the FLOPs
    of each layer over the mean; below G(k, r), with the way that the optimum takes."""
    forward = graph.forward_operators
    flops = [operator.flops for operator in forward]
    cost, after = run_bytes(crossings_of(graph), len(flops)), crossing_bytes(graph)
    states = []
    for delta in deltas:
        try:
            layering: Layering | None = cluster_operators(graph, num_layers, delta=delta)
        except LayeringError:
            layering = None
        table = clustering_table(flops, cost, num_layers, delta)
        traces = [*_bytes(after, layering, [o.name for o in forward], theme), _flops(layering, flops, num_layers)]
        traces += [_limit(num_layers, delta, theme), *_table(table, layering, theme)]
        shapes = _cuts(layering, theme)
        states.append(
            State(label=f"{delta:g}", sentence=_sentence(layering, delta), traces=traces, layout={"shapes": shapes})
        )
    powers = [2.0**k for k in range(2, 44, 4) if min(b for b in after if b) / 16 <= 2.0**k <= max(after) * 16]
    return slider_figure(
        states,
        "delta =",
        start=start,
        theme=theme,
        height=720,
        showlegend=False,
        bargap=0.25,
        xaxis={"range": [-1, len(flops) + 1], "anchor": "y", "showticklabels": False, "showgrid": False},
        yaxis={
            "type": "log",
            "domain": [0.66, 1.0],
            "title": {"text": "bytes cut"},
            "tickvals": powers,
            "ticktext": [units.bytes_(p) for p in powers],
        },
        xaxis2={
            "anchor": "y2",
            "range": [-_LIMIT_ROOM, num_layers - 0.5],
            "tickvals": list(range(num_layers)),
            "title": {"text": "layer", "standoff": 2},
        },
        yaxis2={"domain": [0.37, 0.56], "title": {"text": "FLOPs / mean"}, "range": [0, 1.25 * (1 + max(deltas))]},
        xaxis3={"anchor": "y3", "range": [-1, len(flops)], "title": {"text": "k, operators so far"}},
        yaxis3={"domain": [0.0, 0.25], "title": {"text": "r"}, "dtick": 1},
        margin={"l": 88},
    )


def _sentence(layering: Layering | None, delta: float) -> str:
    if layering is None:
        return f"With delta = {delta:g} no clustering keeps the limit of FLOPs."
    most = max(layer.flops for layer in layering.layers) / np.mean([layer.flops for layer in layering.layers])
    return (
        f"With delta = {delta:g} the costliest layer sends G* = {units.bytes_(layering.objective_bytes)}; "
        f"the largest layer has {most:.2f} of the mean FLOPs."
    )


def _bytes(after: Sequence[int], layering: Layering | None, names: Sequence[str], theme: str) -> list[dict[str, Any]]:
    line = {
        "type": "scatter",
        "x": list(range(len(after))),
        "y": [b or None for b in after],
        "mode": "lines",
        "line": {"color": ink(theme), "width": 1.5, "shape": "hv"},
        "hovertext": [f"a cut behind {name} sends {units.bytes_(b)}" for name, b in zip(names, after, strict=True)],
        "hovertemplate": HOVER_TEXT,
        "name": "bytes of a cut",
    }
    layers = layering.layers if layering is not None else ()
    ends = _ends(layering)
    marks = {
        "type": "scatter",
        "x": [end - 1 for end in ends[:-1]],
        "y": [layer.cut_bytes for layer in layers[:-1]],
        "mode": "markers",
        "marker": {"symbol": "diamond", "size": 10, "color": OKABE_ITO[5]},
        "hovertext": [f"layer {n} sends {units.bytes_(layer.cut_bytes)}" for n, layer in enumerate(layers[:-1])],
        "hovertemplate": HOVER_TEXT,
        "name": "C of the layers",
    }
    return [line, marks]


def _ends(layering: Layering | None) -> list[int]:
    """For each layer the position after its last operator."""
    if layering is None:
        return []
    return list(accumulate(len(layer.operators) for layer in layering.layers))


def _cuts(layering: Layering | None, theme: str) -> list[dict[str, Any]]:
    ends = _ends(layering)
    shapes: list[dict[str, Any]] = [
        {
            "type": "line",
            "x0": end - 0.5,
            "x1": end - 0.5,
            "y0": 0,
            "y1": 1,
            "yref": "y domain",
            "line": {"color": OKABE_ITO[5], "width": 1.5, "dash": "dash"},
        }
        for end in ends[:-1]
    ]
    for number, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
        shapes.append(
            {
                "type": "rect",
                "x0": first - 0.5,
                "x1": end - 0.5,
                "y0": 0,
                "y1": 1,
                "yref": "y domain",
                "fillcolor": stage_color(number, theme),
                "opacity": 0.18,
                "line": {"width": 0},
                "layer": "below",
                "label": {"text": str(number), "textposition": "top center", "font": {"size": 12, "color": ink(theme)}},
            }
        )
    return shapes


def _flops(layering: Layering | None, flops: Sequence[int], num_layers: int) -> dict[str, Any]:
    mean = sum(flops) / num_layers
    layers = layering.layers if layering is not None else ()
    shares = [layer.flops / mean for layer in layers]
    return {
        "type": "bar",
        "x": list(range(len(layers))),
        "y": shares,
        "marker": {"color": [stage_color(n) for n in range(len(layers))], "pattern": hatching("")},
        "text": [f"{share:.2f}" for share in shares],
        "textposition": "outside",
        "hovertemplate": "layer %{x}: %{y:.2f} of the mean<extra></extra>",
        "xaxis": "x2",
        "yaxis": "y2",
    }


def _limit(num_layers: int, delta: float, theme: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": [-_LIMIT_ROOM, num_layers - 0.5],
        "y": [1 + delta] * 2,
        "mode": "lines+text",
        "text": ["1 + delta", ""],
        "textposition": "top right",
        "line": {"color": ink(theme), "dash": "dot", "width": 1.5},
        "hoverinfo": "skip",
        "xaxis": "x2",
        "yaxis": "y2",
    }


def _table(table: Floats, layering: Layering | None, theme: str) -> list[dict[str, Any]]:
    """G(k, r) on a logarithmic scale, and the prefixes of the optimum. Of many operators every n-th is a column."""
    columns = list(range(0, table.shape[1], max(1, table.shape[1] // _COLUMNS)))
    finite = np.where(np.isfinite(table), table, np.nan)[:, columns]
    logs = np.log10(np.maximum(finite, 1.0))
    texts = [["–" if np.isnan(value) else units.bytes_(float(value)) for value in row] for row in finite]
    heat = {
        "type": "heatmap",
        "z": [[None if np.isnan(v) else round(float(v), 3) for v in row] for row in logs],
        "x": columns,
        "y": list(range(table.shape[0])),
        "colorscale": HEAT,
        "showscale": False,
        "text": texts,
        "hovertemplate": "G(%{x}, %{y}) = %{text}<extra></extra>",
        "xaxis": "x3",
        "yaxis": "y3",
    }
    ends = [0, *_ends(layering)]
    way = {
        "type": "scatter",
        "x": ends if layering is not None else [],
        "y": list(range(len(ends))) if layering is not None else [],
        "mode": "lines+markers",
        "line": {"color": OKABE_ITO[5], "width": 2},
        "marker": {"symbol": "diamond", "size": 8, "line": {"width": 1, "color": "#ffffff"}},
        "hoverinfo": "skip",
        "xaxis": "x3",
        "yaxis": "y3",
    }
    return [heat, way]
