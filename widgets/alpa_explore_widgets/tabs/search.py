"""The Search tab: the plans of the history, with buttons that try more."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets as W

from alpa_explore_widgets.tab_kinds.tried_panel import TriedPanel


class SearchPanel(TriedPanel):
    """Which of the plans so far is fast, and which needs little memory?"""

    title, name = "Search", "search"
    room = "comparisons"
    question = "Which plans were made, how fast are they, and how much memory do they need? Click one to show it."

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
