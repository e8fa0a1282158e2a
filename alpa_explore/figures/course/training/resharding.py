"""What it takes to bring a tensor from one sharding spec into another, as a heat map over all pairs."""

import numpy as np

from alpa_explore import units
from alpa_explore.cost.resharding import ReshardTable
from alpa_explore.figures.marks import axis, cells
from alpa_explore.figures.style import Drawing, heat_scale, with_theme
from alpa_explore.sharding.spec import PARTIAL, render

_UNREACHABLE = 1e9
"""Seconds from which on a table means that there is no way."""
_FREE = 1e-7
"""Seconds that stand for nothing on the logarithmic scale."""


@with_theme
def resharding_figure(table: ReshardTable) -> Drawing:
    """A cell for each pair of specs: seconds of the cheapest sequence of collectives, on hover its steps. Cells to a
    pending sum are empty: no data movement makes one."""
    names = [render(spec, table.rank) for spec in table.specs]
    targets = [place for place, spec in enumerate(table.specs) if PARTIAL not in spec]
    seconds = table.seconds[:, targets]
    reached = seconds < _UNREACHABLE
    shown = np.where(reached, np.log10(np.maximum(seconds, _FREE)), np.nan)
    hover = [
        [_steps(table, row, target, names) if reached[row, column] else "" for column, target in enumerate(targets)]
        for row in range(len(names))
    ]
    texts = ["nothing", *(units.seconds(10.0**tick) for tick in range(-6, 0))]
    bar = {"tickvals": list(range(-7, 0)), "ticktext": texts, "title": {"text": "time"}}
    wanted, z = [names[place] for place in targets], np.round(shown, 3).tolist()
    free = int(((seconds == 0) & reached).sum()) - len(targets)
    return Drawing(
        [cells(wanted, names, z, hover=hover, colorscale=heat_scale, colorbar=bar)],
        f"{len(names)} specs: from each (row) into each without a pending sum (column). {free} changes are slices, "
        "which move nothing",
        height=180 + 20 * len(names),
        xaxis=axis("wanted", type="category"),
        yaxis=axis("present", type="category", autorange="reversed"),
        margin={"l": 100},
    )


def _steps(table: ReshardTable, row: int, target: int, names: list[str]) -> str:
    """'S0R → RR: all-gather over axis 0, 53 µs'."""
    steps = table.path(table.specs[row], table.specs[target])
    words = ", then ".join(f"{step.kind.value} over axis {step.axis}, {units.seconds(own)}" for step, own in steps)
    return f"{names[row]} → {names[target]}: {words or 'nothing to do'}"
