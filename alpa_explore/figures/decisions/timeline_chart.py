"""The place of one timeline in a figure: a row for the tasks and one below it for the memory, on a shared time axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import plotly.graph_objects as go

from alpa_explore.schedules.simulator.timeline import Timeline

Span: TypeAlias = tuple[float, float]
"""From, to in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineChart:
    """One timeline, and where and how it is drawn."""

    figure: go.Figure
    timeline: Timeline
    theme: str
    scale: float
    """Seconds of one unit of the time axis."""
    view: Span
    """The part of the iteration that is shown."""
    row: int
    """Subplot row of the tasks; the memory is in the next one."""
    legend: bool
    """Whether its traces are listed in the legend: of several timelines only the first."""

    @property
    def memory_row(self) -> int:
        """Subplot row of the memory."""
        return self.row + 1

    def add(self, trace: Any, row: int | None = None) -> None:
        """Draw a trace in the row of the tasks, or in `row`."""
        self.figure.add_trace(trace, row=self.row if row is None else row, col=1)
