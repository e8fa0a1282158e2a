"""The Memory tab."""

from collections.abc import Callable, Sequence

import ipywidgets as W

from alpa_explore.figures.keys import read_key
from alpa_explore.figures.style import Figure
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.tables import Row
from alpa_explore_widgets.elements.fields import choice_field
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.figure_panel import StagePanel

_TIME, _CHOICES = "time", "choices"


class FrontierPanel(StagePanel):
    """What fills a device over time, and how much slower does a stage become with less memory?"""

    title, name = "Memory", "frontier"
    made_ahead = True
    question = "What fills the memory of a stage's devices, and how much slower would the stage be with less?"

    def __init__(self, select: Callable[[str], None]) -> None:
        self._opened = False
        super().__init__(select)

    def controls(self) -> list[W.Widget]:
        """The stage, and what is shown of its memory."""
        hint = "One iteration over time, by part; or the choices for the stage, with their latency and memory."
        self.view = choice_field("View", hint, {_TIME: "Over time", _CHOICES: "Choices"})
        self.watch(self.view)
        return [*super().controls(), self.view]

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The stage and the view."""
        return (*super().depends_on(state), self.view.value)

    def draw(self, state: State, theme: str) -> Figure:
        """See `alpa_explore.figures.timelines.stage_memory`, or `decisions.frontier`."""
        if self.view.value == _CHOICES:
            return super().draw(state, theme)
        from alpa_explore.figures.timelines.stage_memory import stage_memory_figure

        return stage_memory_figure(self.plan_of(state), self.stage_of_rows(), theme=theme)

    def rows(self, state: State) -> Sequence[Row]:
        """The table of the view."""
        if self.view.value == _CHOICES:
            return super().rows(state)
        from alpa_explore.figures.timelines.stage_memory import stage_memory_table

        return stage_memory_table(self.plan_of(state), self.stage_of_rows())

    def follow(self, state: State) -> None:
        """Begin with the stage that has the least memory left and a choice; then follow the selection."""
        if not self._opened and state.plan is not None and "stage" not in read_key(state.selection):
            with self.quietly(self.stage, self._stage_chosen):  # nothing is selected
                self.stage.value = str(_fullest_with_a_choice(state.plan))
        self._opened = True
        super().follow(state)


def _fullest_with_a_choice(plan: Plan) -> int:
    """The stage with the highest peak among those for which several choices are known, or among all."""

    def rank(stage: int) -> tuple[bool, float]:
        of = plan.stages[stage]
        known = plan.submesh_of(of) in plan.costs.submeshes
        return known and len(plan.costs.candidates.get(plan.key_of(of), ())) > 1, of.peak_bytes

    return max(range(len(plan.stages)), key=rank)
