"""A tab about the plan beside the others that were tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.report.tables import Row
    from alpa_explore_widgets.session.state import State


class TriedPanel(PlanPanel):
    """`name`_figure and `name`_table also take `tried`, the plans of the history."""

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The plans that were tried."""
        return (state.history.entries,)

    def draw(self, state: State, theme: str) -> go.Figure:
        """See the module."""
        figure: go.Figure = self._of("figure")(state.plan, theme=theme, tried=state.history.plans)
        return figure

    def rows(self, state: State) -> Sequence[Row]:
        """See the module."""
        found: Sequence[Row] = self._of("table")(state.plan, tried=state.history.plans)
        return found
