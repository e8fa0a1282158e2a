"""The Search tab: the plans of the history, with buttons that try more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import ipywidgets as W

from alpa_explore_widgets.tab_kinds.tried_panel import TriedPanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.report.tables import Row
    from alpa_explore.plans.report.tried import NoPlan
    from alpa_explore_widgets.session.state import State


class SearchPanel(TriedPanel):
    """Which of the plans so far is fast, and which needs little memory?"""

    title, name = "Search", "search"
    room = "comparisons"
    made_ahead = True
    question = "How fast are the plans so far, and how much memory do they need? A click on one shows it."

    def __init__(self, try_neighbours: Callable[[], None], try_baselines: Callable[[], None]) -> None:
        self._try_neighbours, self._try_baselines = try_neighbours, try_baselines
        super().__init__()

    def controls(self) -> list[W.Widget]:
        """The buttons."""
        return [
            self.button(
                "Try neighbours",
                "Plan with another δ, other numbers of layers, and the other choice of recomputation",
                self._try_neighbours,
            ),
            self.button(
                "Try baselines", "Data parallel, ZeRO-3, Megatron, … on the same model and cluster", self._try_baselines
            ),
        ]

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The plans of the history, and what has no plan."""
        return (*super().depends_on(state), state.no_plans)

    def draw(self, state: State, theme: str) -> go.Figure:
        """The figure of the module `name`."""
        tried, failed = state.history.plans, _of_model(state)
        figure: go.Figure = self._function("figure")(state.plan, theme=theme, tried=tried, failed=failed)
        return figure

    def rows(self, state: State) -> Sequence[Row]:
        """The table of the module `name`."""
        tried, failed = state.history.plans, _of_model(state)
        rows: Sequence[Row] = self._function("table")(state.plan, tried=tried, failed=failed)
        return rows


def _of_model(state: State) -> tuple[NoPlan, ...]:
    """What has no plan for the model on screen."""
    assert state.plan is not None, "shown before there was a plan"
    return tuple(attempt for attempt in state.no_plans if attempt.model == state.plan.model.name)
