"""The Why tab, with a button that plans with neighbouring settings."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets as W

from alpa_explore_widgets.tab_kinds.tried_panel import TriedPanel


class WhyPanel(TriedPanel):
    """Where does the time go, what limits the plan, and what would a single change do?"""

    title, name = "Why", "why"
    room = "comparisons"
    question = "Where does the time go, what limits the plan, and what would a single change do?"

    def __init__(self, try_neighbours: Callable[[], None]) -> None:
        self._try_neighbours = try_neighbours
        super().__init__()

    def controls(self) -> list[W.Widget]:
        """The button."""
        hint = "Plan with another δ, other numbers of layers, and the other choice of recomputation; this plan stays"
        return [self.button("Try neighbours", hint, self._try_neighbours)]
