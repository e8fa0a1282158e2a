"""Formulations of one sharding problem beside each other, for several stages: size, seconds, and gap to the optimum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from alpa_explore import units
from alpa_explore.figures.course.states import State, menu_figure
from alpa_explore.figures.style import OKABE_ITO, hatching, ink
from alpa_explore.intra_op.formulations.comparison import Comparison

_PANELS = (
    ("variables", "x", "y", (0.0, 0.28), "log"),
    ("seconds to solve", "x2", "y2", (0.38, 0.63), "log"),
    ("% above the optimum", "x3", "y3", (0.73, 1.0), "linear"),
)


def formulations_figure(comparisons: Mapping[str, Comparison], theme: str = "light") -> go.Figure:
    """A button for each stage; three panels: variables (hatched: constraints), seconds, and the gap of the answer
    (hatched: before its repair)."""
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
        states.append(State(label=name, sentence=sentence, traces=_bars(comparison, theme)))
    axes: dict[str, Any] = {}
    for title, x, y, domain, scale in _PANELS:
        x_name, y_name = x.replace("x", "xaxis"), y.replace("y", "yaxis")
        axes[x_name] = {"domain": list(domain), "anchor": y, "tickangle": 30}
        axes[y_name] = {"anchor": x, "type": scale, "title": {"text": title, "standoff": 4}, "nticks": 6}
    return menu_figure(states, theme=theme, height=520, barmode="group", bargap=0.3, margin={"b": 150}, **axes)


def _bars(comparison: Comparison, theme: str) -> list[dict[str, Any]]:
    rows = comparison.rows
    names = [row.solver for row in rows]
    before = [comparison.gap_before(row) for row in rows]

    def bar(
        panel: int, name: str, values: list[float | None], texts: list[str], color: str, shape: str
    ) -> dict[str, Any]:
        _, x, y, _, _ = _PANELS[panel]
        return {
            "type": "bar",
            "x": names,
            "y": values,
            "name": name,
            "text": texts,
            "textposition": "outside",
            "cliponaxis": False,
            "textfont": {"size": 11, "color": ink(theme)},
            "marker": {"color": color, "pattern": hatching(shape)},
            "hovertemplate": f"%{{x}}: %{{text}} {name}<extra></extra>",
            "xaxis": x,
            "yaxis": y,
        }

    return [
        bar(
            0,
            "variables",
            [row.variables or None for row in rows],
            [units.count(row.variables) if row.variables else "no ILP" for row in rows],
            OKABE_ITO[0],
            "",
        ),
        bar(
            0,
            "constraints",
            [row.constraints or None for row in rows],
            [units.count(row.constraints) if row.constraints else "" for row in rows],
            OKABE_ITO[4],
            "/",
        ),
        bar(
            1,
            "in all",
            [row.total_seconds for row in rows],
            [units.seconds(row.total_seconds) for row in rows],
            OKABE_ITO[2],
            "",
        ),
        bar(
            2,
            "before the repair",
            [None if gap is None else 100 * gap for gap in before],
            ["illegal" if gap is None else units.percent(gap) for gap in before],
            OKABE_ITO[1],
            "/",
        ),
        bar(
            2,
            "of the answer",
            [100 * comparison.gap(row) for row in rows],
            [units.percent(comparison.gap(row)) for row in rows],
            OKABE_ITO[5],
            "",
        ),
    ]
