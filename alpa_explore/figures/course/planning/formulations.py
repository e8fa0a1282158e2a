"""Formulations of one sharding problem beside each other, for several stages: size, seconds, and gap to the optimum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures import tuning
from alpa_explore.figures.course.states import State, menu_figure
from alpa_explore.figures.style import OKABE_ITO, hatching, ink
from alpa_explore.formulations.comparison import Comparison

_PANELS = (
    ("variables; hatched: constraints", "x", (0.0, 0.29)),
    ("time to solve (s)", "x2", (0.36, 0.63)),
    ("% above the optimum; hatched: before repair", "x3", (0.70, 0.94)),
)
"""Title, axis, and place of each panel. They share the names of the formulations."""
_ROOM = 0.75
"""Decades to the right of the longest bar of a logarithmic axis: the values stand there."""
_BUTTONS_BELOW = 64
"""Pixels between the plot and its buttons: the numbers and the titles of the axes stand there."""


def formulations_figure(comparisons: Mapping[str, Comparison], theme: str = "light") -> go.Figure:
    """A button for each stage; three panels: variables (hatched: constraints), seconds, and the gap of the answer
    (hatched: before its repair)."""
    rows = [row for comparison in comparisons.values() for row in comparison.rows]
    gaps = [gap for c in comparisons.values() for row in c.rows for gap in (c.gap(row), c.gap_before(row) or 0.0)]
    ranges = (
        _decades([size for row in rows for size in (row.variables, row.constraints) if size]),
        _decades([row.total_seconds for row in rows]),
        [0.0, 140 * max(*gaps, 1e-3)],
    )
    states = []
    for name, comparison in comparisons.items():
        worst = max(comparison.rows, key=comparison.gap)
        gap = comparison.gap(worst)
        verdict = (
            f"{worst.solver} misses the optimum by {units.percent(gap)}"
            if gap > 0
            else "every formulation reaches the optimum"
        )
        sentence = (
            f"{name}: Eq. 1 has {comparison.pairs:,} variables for {comparison.nodes} nodes and {comparison.edges} "
            f"edges; {verdict}."
        )
        states.append(
            State(label=name, sentence=sentence, traces=_bars(comparison, 1.01 * 10.0 ** ranges[0][0], theme))
        )
    axes: dict[str, Any] = {}
    for (title, x, domain), span in zip(_PANELS, ranges, strict=True):
        scale = {"nticks": 5} if x == "x3" else {"type": "log", "dtick": 1}
        axes[x.replace("x", "xaxis")] = {
            "domain": list(domain),
            "range": span,
            "title": {"text": title, "standoff": 6, "font": {"size": 12}},
            **scale,
        }
    return menu_figure(
        states,
        theme=theme,
        height=500,
        buttons_below=_BUTTONS_BELOW,
        barmode="group",
        bargap=0.25,
        showlegend=False,
        meta={"least_width": tuning.LABELLED_PIXELS},
        yaxis={"autorange": "reversed", "showgrid": False},
        margin={"l": 96},
        **axes,
    )


def _decades(values: Sequence[float]) -> list[float]:
    """The range of a logarithmic axis, from a power of ten."""
    return [math.floor(math.log10(min(values))), math.log10(max(values)) + _ROOM]


def _bars(comparison: Comparison, least: float, theme: str) -> list[dict[str, Any]]:
    """The bars of a stage; `least` is where the axis of variables begins, where a method without an ILP is named."""
    rows = comparison.rows
    before = [comparison.gap_before(row) for row in rows]

    def bar(axis: str, name: str, values: list[float], texts: list[str], color: str, shape: str = "") -> dict[str, Any]:
        return {
            "type": "bar",
            "orientation": "h",
            "y": [row.solver for row in rows],
            "x": values,
            "name": name,
            "text": texts,
            "textposition": "outside",
            "constraintext": "none",
            "cliponaxis": False,
            "textfont": {"size": 11, "color": ink(theme)},
            "marker": {"color": color, "pattern": hatching(shape)},
            "hovertemplate": f"%{{y}}: %{{text}} {name}<extra></extra>",
            "xaxis": axis,
        }

    return [
        bar(
            "x",
            "variables",
            [row.variables or least for row in rows],
            [units.count(row.variables) if row.variables else "no ILP" for row in rows],
            OKABE_ITO[0],
        ),
        bar(
            "x",
            "constraints",
            [row.constraints or least for row in rows],
            [units.count(row.constraints) if row.constraints else "" for row in rows],
            OKABE_ITO[4],
            "/",
        ),
        bar(
            "x2",
            "in all",
            [row.total_seconds for row in rows],
            [units.seconds(row.total_seconds) for row in rows],
            OKABE_ITO[2],
        ),
        bar(
            "x3",
            "before the repair",
            [0.0 if gap is None else 100 * gap for gap in before],
            ["illegal" if gap is None else units.percent(gap) for gap in before],
            OKABE_ITO[1],
            "/",
        ),
        bar(
            "x3",
            "above the optimum",
            [100 * comparison.gap(row) for row in rows],
            [units.percent(comparison.gap(row)) for row in rows],
            OKABE_ITO[5],
        ),
    ]
