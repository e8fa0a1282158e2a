"""The base class of the tabs that compare the plan with the others of the history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.report.tables import Row
    from alpa_explore_widgets.session.state import State


class TriedPanel(PlanPanel):
    """A PlanPanel whose figure and table also take `tried`, the plans of the history."""

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The plans of the history."""
        return (state.history.entries,)

    def draw(self, state: State, theme: str) -> go.Figure:
        """The figure of the module `name`."""
        figure: go.Figure = self._function("figure")(state.plan, theme=theme, tried=state.history.plans)
        return figure

    def rows(self, state: State) -> Sequence[Row]:
        """The table of the module `name`."""
        rows: Sequence[Row] = self._function("table")(state.plan, tried=state.history.plans)
        return rows
