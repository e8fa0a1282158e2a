"""Operator clustering by Eq. 6 of Alpa (arXiv 2201.12023, §5.2), with a slider for delta.

    G(k, r) = min over i of max( G(i, r−1), C(i+1, k) ),   FLOP(i+1 … k) ≤ (1 + delta) · FLOP_total / L,   G(0, 0) = 0

The library runs the same recurrence over suffixes (`layering.dp`); `clustering_table` is the paper's, over prefixes.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from alpa_explore import units
from alpa_explore.errors import LayeringError
from alpa_explore.figures.course.interactive import InteractiveFigure, of_states, steady
from alpa_explore.figures.marks import at, axis, bars, line, mark, points
from alpa_explore.figures.style import OKABE_ITO, Trace, heat_scale, ink, stage_color
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


def clustering_figure(graph: TrainingGraph, num_layers: int, deltas: Sequence[float]) -> InteractiveFigure:
    """Above, the bytes that a cut behind each operator would send, the layers and their cuts; in the middle the FLOPs
    of each layer over the mean; below G(k, r), with the way that the optimum takes."""
    forward = graph.forward_operators
    flops = [operator.flops for operator in forward]
    cost, after = run_bytes(crossings_of(graph), len(flops)), crossing_bytes(graph)
    hover = [f"a cut behind {o.name} sends {units.bytes_(b)}" for o, b in zip(forward, after, strict=True)]
    x, sent = list(range(len(after))), [b or None for b in after]
    curve = line(x, sent, ink, 1.5, shape="hv", hover=hover, name="bytes of a cut")
    powers = [2.0**k for k in range(2, 44, 4) if min(b for b in after if b) / 16 <= 2.0**k <= max(after) * 16]
    ticks, numbers = {p: units.bytes_(p) for p in powers}, {"tickvals": list(range(num_layers))}
    common: Trace = {
        "height": 630,
        "showlegend": False,
        "bargap": 0.25,
        "xaxis": axis(span=(-1, len(flops) + 1), anchor="y", showticklabels=False, showgrid=False),
        "yaxis": axis("bytes cut", type="log", domain=[0.66, 1.0], ticks=ticks),
        "xaxis2": axis("layer", (-_LIMIT_ROOM, num_layers - 0.5), standoff=2, anchor="y2", **numbers),
        "yaxis2": axis("FLOPs / mean", (0, 1.25 * (1 + max(deltas))), domain=[0.37, 0.56]),
        "xaxis3": axis("k, operators so far", (-1, len(flops)), anchor="y3"),
        "yaxis3": axis("r", domain=[0.0, 0.25], dtick=1),
        "margin": {"l": 88},
    }
    states = {}
    for delta in deltas:
        try:
            layering: Layering | None = cluster_operators(graph, num_layers, delta=delta)
        except LayeringError:
            layering = None
        table = clustering_table(flops, cost, num_layers, delta)
        traces = [curve, *_layer_marks(layering, sum(flops) / num_layers, num_layers, delta), *_table(table, layering)]
        states[f"{delta:g}"] = steady(traces, _sentence(layering, delta), shapes=_cuts(layering), **common)
    return of_states("Layers of a model, and the table that finds them, for each delta", "δ", states)


def _sentence(layering: Layering | None, delta: float) -> str:
    if layering is None:
        return f"With delta = {delta:g} no clustering keeps the limit of FLOPs."
    most = max(layer.flops for layer in layering.layers) / np.mean([layer.flops for layer in layering.layers])
    return (
        f"With delta = {delta:g} the costliest layer sends G* = {units.bytes_(layering.objective_bytes)}; "
        f"the largest layer has {most:.2f} of the mean FLOPs."
    )


def _ends(layering: Layering | None) -> list[int]:
    """For each layer the position after its last operator."""
    if layering is None:
        return []
    return list(accumulate(len(layer.operators) for layer in layering.layers))


def _cuts(layering: Layering | None) -> list[Trace]:
    ends, high = _ends(layering), {"y0": 0, "y1": 1, "yref": "y domain"}
    dashed = {"type": "line", "line": {"color": OKABE_ITO[5], "width": 1.5, "dash": "dash"}, **high}
    shapes: list[Trace] = [dashed | {"x0": end - 0.5, "x1": end - 0.5} for end in ends[:-1]]
    pale = {"type": "rect", "opacity": 0.18, "line": {"width": 0}, "layer": "below", **high}
    for number, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
        label = {"text": str(number), "textposition": "top center", "font": {"size": 12, "color": ink}}
        box = {"x0": first - 0.5, "x1": end - 0.5, "fillcolor": stage_color(number), "label": label}
        shapes.append(pale | box)
    return shapes


def _table(table: Floats, layering: Layering | None) -> list[Trace]:
    """G(k, r) on a logarithmic scale, and the prefixes of the optimum. Of many operators every n-th is a column."""
    columns = list(range(0, table.shape[1], max(1, table.shape[1] // _COLUMNS)))
    finite = np.where(np.isfinite(table), table, np.nan)[:, columns]
    logs = np.log10(np.maximum(finite, 1.0))
    texts = [["–" if np.isnan(value) else units.bytes_(float(value)) for value in row] for row in finite]
    z = [[None if np.isnan(v) else round(float(v), 3) for v in row] for row in logs]
    looks = {"colorscale": heat_scale, "showscale": False, "text": texts, "hover": "G(%{x}, %{y}) = %{text}"}
    ends = [0, *_ends(layering)] if layering is not None else []
    marker = {"symbol": "diamond", "size": 8, "line": {"width": 1, "color": "#ffffff"}}
    way = line(ends, list(range(len(ends))), OKABE_ITO[5], mode="lines+markers", marker=marker, **at(3))
    return [mark("heatmap", columns, list(range(table.shape[0])), z=z, **looks, **at(3)), way]


def _layer_marks(layering: Layering | None, mean: float, num_layers: int, delta: float) -> list[Trace]:
    """What the layers send, their FLOPs over the mean, and the limit of those."""
    layers = layering.layers if layering is not None else ()
    sent, ends = [layer.cut_bytes for layer in layers[:-1]], [end - 1 for end in _ends(layering)[:-1]]
    hover = [f"layer {n} sends {units.bytes_(b)}" for n, b in enumerate(sent)]
    numbers, shares = list(range(len(layers))), [layer.flops / mean for layer in layers]
    texts = {"text": [f"{share:.2f}" for share in shares], "textposition": "outside"}
    name, limit = {"text": ["1 + delta", ""], "textposition": "top right", "mode": "lines+text"}, [1 + delta] * 2
    colors, about = [stage_color(n) for n in numbers], "layer %{x}: %{y:.2f} of the mean"
    return [
        points(ends, sent, OKABE_ITO[5], "diamond", hover=hover, name="C of the layers"),
        bars(numbers, shares, colors, hover=about, **texts, **at(2)),
        line([-_LIMIT_ROOM, num_layers - 0.5], limit, ink, 1.5, "dot", **name, **at(2)),
    ]
