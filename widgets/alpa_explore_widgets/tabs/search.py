"""The Search tab: the plans of the history, with buttons that try more."""

from collections.abc import Callable
from typing import Any

import ipywidgets as W

from alpa_explore_widgets.elements.fields import plain_button
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel


class SearchPanel(PlanPanel):
    """Which of the plans so far is fast, and which needs little memory?"""

    title, name, room = "Search", "search", "comparisons"
    made_ahead = True
    question = "How fast are the plans so far, and how much memory do they need? A click on one shows it."

    def __init__(self, try_settings: Callable[[], None], try_baselines: Callable[[], None]) -> None:
        self._try_settings, self._try_baselines = try_settings, try_baselines
        super().__init__()

    def controls(self) -> list[W.Widget]:
        """The buttons."""
        return [
            plain_button("Try settings", "Plan each change of Why that needs no other hardware", self._try_settings),
            plain_button(
                "Try baselines", "Data parallel, ZeRO-3, Megatron, … on the same model and cluster", self._try_baselines
            ),
        ]

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The plans of the history, and what has no plan."""
        return (state.history.entries, state.no_plans)

    def arguments(self, state: State) -> dict[str, Any]:
        """The plans of the history, and what has no plan for the model on screen."""
        model = self.plan_of(state).model.name
        failed = tuple(attempt for attempt in state.no_plans if attempt.model == model)
        return {"tried": state.history.plans, "failed": failed}
