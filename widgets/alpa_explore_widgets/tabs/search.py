"""The Search tab: the plans that were tried, with buttons that try more."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets as W

from alpa_explore_widgets.tab_kinds.tried_panel import TriedPanel


class SearchPanel(TriedPanel):
    """Which of the plans that were tried is fast, and which needs little memory?"""

    title, name = "Search", "search"
    room = "comparisons"
    question = "Which plans were tried, how fast are they, and how much memory do they need? Click one to show it."

    def __init__(self, try_neighbours: Callable[[], None], try_baselines: Callable[[], None]) -> None:
        self._try, self._by_hand = try_neighbours, try_baselines
        super().__init__()

    def controls(self) -> list[W.Widget]:
        """The buttons."""
        return [
            self.button(
                "Try neighbours", "Plan with another δ, other numbers of layers, and the other recomputation", self._try
            ),
            self.button(
                "Try baselines", "Data parallel, ZeRO-3, Megatron, … on the same model and cluster", self._by_hand
            ),
        ]
