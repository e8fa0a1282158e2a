"""The Memory tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpa_explore.figures.keys import read_key
from alpa_explore_widgets.tab_kinds.stage_panel import StagePanel

if TYPE_CHECKING:
    from collections.abc import Callable

    from alpa_explore.plans.plan import Plan
    from alpa_explore_widgets.session.state import State


class FrontierPanel(StagePanel):
    """How much slower does a stage become with less memory?"""

    title, name = "Memory", "frontier"
    question = "How much slower would a stage be with less memory, and what fills the memory of its devices?"

    def __init__(self, select: Callable[[str], None]) -> None:
        self._opened = False
        super().__init__(select)

    def follow(self, state: State) -> None:
        """Begin with the stage that has the least memory left and a choice; then follow the selection."""
        if not self._opened and state.plan is not None and "stage" not in read_key(state.selection):
            self.stage.unobserve(self._stage_chosen, "value")  # not a choice of the user: nothing is selected
            self.stage.value = str(_fullest_with_a_choice(state.plan))
            self.stage.observe(self._stage_chosen, "value")
        self._opened = True
        super().follow(state)


def _fullest_with_a_choice(plan: Plan) -> int:
    """The stage with the highest peak among those for which several choices are known, or among all."""

    def rank(stage: int) -> tuple[bool, float]:
        of = plan.stages[stage]
        known = plan.submesh_of(of) in plan.costs.submeshes
        return known and len(plan.costs.candidates.get(plan.key_of(of), ())) > 1, of.peak_bytes

    return max(range(len(plan.stages)), key=rank)
