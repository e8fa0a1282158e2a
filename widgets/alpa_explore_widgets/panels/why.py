"""The Why tab, with a button that tries neighbours of the plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import ipywidgets as W

from alpa_explore_widgets.panels.figure_panel import PlanPanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.tables import Row
    from alpa_explore_widgets.state import State


class WhyPanel(PlanPanel):
    """Where does the time go, what holds the plan back, and what would a single change do?"""

    title, name = "Why", "why"
    question = "Where does the time go, what holds the plan back, and what would a single change do?"

    def __init__(self, try_neighbours: Callable[[], None]) -> None:
        self._try = try_neighbours
        super().__init__()

    def controls(self) -> list[W.Widget]:
        """The button."""
        button = W.Button(
            description="Try neighbours",
            tooltip="Plan with another δ, other numbers of layers, and recomputation the other way; the plan stays",
        )
        button.add_class("alpa-plain")
        button.on_click(lambda _: self._try())
        return [button]

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The plans that were tried."""
        return (state.history.entries,)

    def draw(self, state: State, theme: str) -> go.Figure:
        """The plan beside those that were tried."""
        figure: go.Figure = self._of("figure")(state.plan, theme=theme, **self._tried(state))
        return figure

    def rows(self, state: State) -> Sequence[Row]:
        """The same as a table."""
        found: Sequence[Row] = self._of("table")(state.plan, **self._tried(state))
        return found

    def _tried(self, state: State) -> dict[str, Any]:
        return {"tried": state.history.plans}
