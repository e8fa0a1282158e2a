"""The FLOPs of one training step by phase and kind of operator, for several graphs of one model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures.course.states import State, slider_figure
from alpa_explore.figures.style import OKABE_ITO, hatching, ink
from alpa_explore.graph import Phase, TrainingGraph

_PRODUCTS = ("mm", "bmm", "linear", "convolution", "einsum")
_LOOKS = {"products": (OKABE_ITO[0], ""), "attention": (OKABE_ITO[1], "/"), "all others": (OKABE_ITO[2], "x")}
_PHASES = {"forward": Phase.FORWARD, "backward": Phase.BACKWARD, "update": Phase.UPDATE}


def family(kind: str) -> str:
    """'products', 'attention' or 'all others'."""
    if "attention" in kind:
        return "attention"
    return "products" if any(word in kind for word in _PRODUCTS) else "all others"


def flops_by_family(graph: TrainingGraph) -> dict[str, dict[str, int]]:
    """Phase -> family -> FLOPs."""
    table = {phase: dict.fromkeys(_LOOKS, 0) for phase in _PHASES}
    for operator in graph.operators:
        table[operator.phase.value][family(operator.kind)] += operator.flops
    return table


def step_figure(graphs: Mapping[str, TrainingGraph], name: str, theme: str = "light") -> go.Figure:
    """Stacked bars of a phase each; the slider `name` moves through the graphs."""
    states = []
    for label, graph in graphs.items():
        table = flops_by_family(graph)
        total = sum(sum(row.values()) for row in table.values())
        attention = sum(row["attention"] for row in table.values())
        backward = sum(table["backward"].values()) / sum(table["forward"].values())
        sentence = (
            f"{label}: {units.flops(total)} a step; the backward pass has {backward:.2f} times the FLOPs of the "
            f"forward pass, attention {units.percent(attention / total)} of all."
        )
        states.append(State(label=label, sentence=sentence, traces=_bars(table, total, theme)))
    return slider_figure(
        states,
        name,
        theme=theme,
        height=460,
        barmode="stack",
        bargap=0.4,
        xaxis={"type": "category"},
        yaxis={"title": {"text": "share of the FLOPs"}, "tickformat": ".0%", "range": [0, 0.9]},
    )


def _bars(table: Mapping[str, Mapping[str, int]], total: int, theme: str) -> list[dict[str, Any]]:
    return [
        {
            "type": "bar",
            "x": list(table),
            "y": [table[phase][kind] / total for phase in table],
            "name": kind,
            "marker": {"color": color, "pattern": hatching(shape)},
            "text": [units.flops(table[phase][kind]) if table[phase][kind] > 0.02 * total else "" for phase in table],
            "textfont": {"color": "#ffffff" if kind == "products" else ink(theme)},
            "hovertext": [f"{phase}, {kind}: {units.flops(table[phase][kind])}" for phase in table],
            "hovertemplate": "%{hovertext}<extra></extra>",
        }
        for kind, (color, shape) in _LOOKS.items()
    ]
