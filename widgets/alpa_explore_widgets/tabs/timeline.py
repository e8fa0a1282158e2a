"""The Timeline tab: a schedule, another beside it, and which part of the iteration is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ipywidgets as W

from alpa_explore_widgets.elements.fields import ChoiceField
from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan
    from alpa_explore.plans.report.tables import Row
    from alpa_explore_widgets.session.state import State

_ALONE = "none"
_WINDOWS = [
    ["whole", "the whole iteration", ""],
    ["start", "its start", ""],
    ["middle", "its middle", ""],
    ["end", "its end", ""],
]


class TimelinePanel(PlanPanel):
    """What does each submesh do when?"""

    title, name = "Timeline", "timeline"
    question = "What does each submesh do when, and what does it hold?"

    def controls(self) -> list[W.Widget]:
        """The schedule, one beside it, and the part of the iteration."""
        self._offered: Plan | None = None
        self.schedule = ChoiceField(
            label="Schedule", hint="The order of the tasks.", choices=[["1f1b", "1f1b", ""]], value="1f1b"
        )
        self.beside = ChoiceField(
            label="Beside it",
            hint="Another schedule on the same axis of time.",
            choices=[[_ALONE, "none", ""]],
            value=_ALONE,
        )
        self.window = ChoiceField(
            label="Shown", hint="A part is short enough to be drawn task by task.", choices=_WINDOWS, value="whole"
        )
        fields = [self.schedule, self.beside, self.window]
        for field in fields:
            field.observe(self._chosen, "value")
        return list(fields)

    def follow(self, state: State) -> None:
        """The choices are the schedules that exist for the plan."""
        assert state.plan is not None, "shown before there was a plan"
        if state.plan is self._offered:
            return
        from alpa_explore.plans.schedule_stages import possible_schedules

        self._offered = state.plan
        names = possible_schedules(state.plan)
        for field, more in ((self.schedule, []), (self.beside, [[_ALONE, "none", ""]])):
            choices = more + [[name, name, ""] for name in names]
            if field.value not in [value for value, *_ in choices]:
                field.unobserve(self._chosen, "value")  # it is being drawn already
                field.value = choices[0][0]
                field.observe(self._chosen, "value")
            field.choices = choices

    def schedules(self) -> tuple[str, ...]:
        """What is chosen."""
        chosen = (self.schedule.value, self.beside.value)
        return tuple(name for name in dict.fromkeys(chosen) if name != _ALONE)

    def depends_on(self, _state: State) -> tuple[object, ...]:
        """What is chosen above the figure."""
        return (*self.schedules(), self.window.value)

    def draw(self, state: State, theme: str) -> go.Figure:
        """See `alpa_explore.figures.decisions.timeline`."""
        figure: go.Figure = self._of("figure")(state.plan, self.schedules(), theme=theme, window=self.window.value)
        return figure

    def rows(self, state: State) -> Sequence[Row]:
        """The same as a table."""
        found: Sequence[Row] = self._of("table")(state.plan, self.schedules())
        return found

    def _chosen(self, _change: dict[str, Any]) -> None:
        self.redraw()
