"""In every figure the mark that is called a limit lies at the limit, in the unit of its axis."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest

from alpa_explore.figures.comparisons.search import search_figure
from alpa_explore.figures.timelines.stage_memory import stage_memory_figure
from alpa_explore.plans.plan import Plan
from tests.figures.test_figures import FIGURES

BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
LIMIT = "memory of a device"


def limits(figure: go.Figure) -> Iterator[float]:
    """The bytes at which lines and words stand that are called the memory of a device."""
    marks: list[tuple[str, Any]] = []
    for trace in figure.data:
        if trace.name == LIMIT and trace.type == "scatter":
            x, y = list(trace.x), list(trace.y)
            upright = len(set(x)) == 1
            marks.append(((trace.xaxis or "x") if upright else (trace.yaxis or "y"), set(x if upright else y)))
    for note in figure.layout.annotations:
        if "one device" in (note.text or "") and "→" not in note.text:
            upright = re.fullmatch(r"x\d*", note.xref or "x") is not None
            marks.append((note.xref, {note.x}) if upright else (note.yref, {note.y}))
    for axis, places in marks:
        title = figure.layout[f"{axis[0]}axis{axis[1:]}"].title.text
        (unit,) = re.findall(r"\(([KMGT]?i?B)\)", title)
        (place,) = places
        yield place * BYTES[unit]


@pytest.mark.parametrize("draw", [*FIGURES, stage_memory_figure, search_figure])
def test_a_line_at_the_memory_of_a_device_is_there(draw: Any, plan: Plan) -> None:
    # No round number of any unit, and far enough from the plan's bytes for no axis to lose it.
    memory = round(1.05 * max(stage.peak_bytes for stage in plan.stages))
    device = replace(plan.cluster.device, memory_bytes=memory)
    costs = replace(plan.costs, device_memory_bytes=memory)
    plan = replace(plan, cluster=replace(plan.cluster, device=device), costs=costs)
    found = list(limits(draw(plan, tried=[plan]) if draw is search_figure else draw(plan)))
    assert found == pytest.approx([memory] * len(found))
    drawn = {"frontier_figure": 3, "timeline_figure": 1, "microbatches_figure": 2, "stage_memory_figure": 1}
    assert len(found) == (drawn | {"search_figure": 2}).get(draw.__name__, 0)
