"""What it takes to bring a tensor from one sharding spec into another, as a heat map over all pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from alpa_explore import units
from alpa_explore.figures.style import HEAT, HOVER_TEXT, dress
from alpa_explore.sharding.spec import PARTIAL, render

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.cost.resharding import ReshardTable

_UNREACHABLE = 1e9
"""Seconds from which on a table means that there is no way."""
_FREE = 1e-7
"""Seconds that stand for nothing on the logarithmic scale."""


def resharding_figure(table: ReshardTable, *, theme: str = "light") -> go.Figure:
    """A cell for each pair of specs: seconds of the cheapest sequence of collectives, on hover its steps. Cells to a
    pending sum are empty: no data movement makes one."""
    import plotly.graph_objects as go

    names = [render(spec, table.rank) for spec in table.specs]
    targets = [place for place, spec in enumerate(table.specs) if PARTIAL not in spec]
    seconds = table.seconds[:, targets]
    reached = seconds < _UNREACHABLE
    shown = np.where(reached, np.log10(np.maximum(seconds, _FREE)), np.nan)
    texts = [
        [_steps(table, row, target, names) if reached[row, column] else "" for column, target in enumerate(targets)]
        for row in range(len(names))
    ]
    ticks = list(range(-7, 0))
    trace = {
        "type": "heatmap",
        "z": np.round(shown, 3).tolist(),
        "x": [names[place] for place in targets],
        "y": names,
        "text": texts,
        "hovertemplate": HOVER_TEXT.replace("hovertext", "text"),
        "colorscale": HEAT,
        "hoverongaps": False,
        "colorbar": {
            "tickvals": ticks,
            "ticktext": ["nothing", *(units.seconds(10.0**tick) for tick in ticks[1:])],
            "title": {"text": "time"},
        },
    }
    free = int(((seconds == 0) & reached).sum()) - len(targets)
    title = (
        f"{len(names)} specs: from each (row) into each without a pending sum (column). {free} changes are slices, "
        "which move nothing"
    )
    return dress(
        go.Figure([trace]),
        title,
        theme=theme,
        height=180 + 20 * len(names),
        xaxis={"title": {"text": "wanted"}, "type": "category"},
        yaxis={"title": {"text": "present"}, "type": "category", "autorange": "reversed"},
        margin={"l": 100},
    )


def _steps(table: ReshardTable, row: int, target: int, names: list[str]) -> str:
    """'S0R → RR: all-gather over axis 0, 53 µs'."""
    steps = table.path(table.specs[row], table.specs[target])
    words = ", then ".join(f"{step.kind.value} over axis {step.axis}, {units.seconds(own)}" for step, own in steps)
    return f"{names[row]} → {names[target]}: {words or 'nothing to do'}"
