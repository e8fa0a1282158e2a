"""The FLOPs of one training step by phase and kind of operator, for several graphs of one model."""

from collections.abc import Mapping

from alpa_explore import units
from alpa_explore.figures.course.interactive import InteractiveFigure, of_states, steady
from alpa_explore.figures.marks import axis, bars
from alpa_explore.figures.style import OKABE_ITO, Trace, ink
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


def step_figure(graphs: Mapping[str, TrainingGraph], name: str) -> InteractiveFigure:
    """Stacked bars of a phase each; the slider `name` moves through the graphs."""
    axes: Trace = {"xaxis": {"type": "category"}, "yaxis": axis("share of the FLOPs", (0, 0.9), tickformat=".0%")}
    common: Trace = {"barmode": "stack", "bargap": 0.4, "uniformtext": {"minsize": 10, "mode": "hide"}, **axes}
    states = {}
    for label, graph in graphs.items():
        table = flops_by_family(graph)
        total = sum(sum(row.values()) for row in table.values())
        attention = sum(row["attention"] for row in table.values())
        backward = sum(table["backward"].values()) / sum(table["forward"].values())
        sentence = (
            f"{label}: {units.flops(total)} a step; the backward pass has {backward:.2f} times the FLOPs of the "
            f"forward pass, attention {units.percent(attention / total)} of all."
        )
        traces = []
        for kind, (color, shape) in _LOOKS.items():
            flops = [row[kind] for row in table.values()]
            hover = [f"{phase}, {kind}: {units.flops(f)}" for phase, f in zip(table, flops, strict=True)]
            texts = [units.flops(f) if f > 0.02 * total else "" for f in flops]
            looks = {"text": texts, "textfont": {"color": "#ffffff" if kind == "products" else ink}}
            shares = [f / total for f in flops]
            traces.append(bars(list(table), shares, color, shape, name=kind, hover=hover, **looks))
        states[label] = steady(traces, sentence, height=400, **common)
    return of_states("FLOPs of a training step by phase and kind of operator", name, states)
