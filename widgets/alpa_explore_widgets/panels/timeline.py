"""The Timeline tab: a schedule, another beside it, and which part of the iteration is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ipywidgets as W

from alpa_explore_widgets.fields import ChoiceField
from alpa_explore_widgets.panels.figure_panel import FigurePanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan

_ALONE = "none"
_WINDOWS = [["whole", "the whole iteration", ""], ["start", "its start", ""], ["middle", "its middle", ""],
            ["end", "its end", ""]]  # fmt: skip


class TimelinePanel(FigurePanel):
    """What does each submesh do when?"""

    title = "Timeline"
    question = "What does each submesh do when, how long does it wait, and what does it hold, under which schedule?"

    def controls(self) -> list[W.Widget]:
        """The schedule, one beside it, and the part of the iteration."""
        self.schedule = ChoiceField(
            label="Schedule", hint="The order of the tasks.", choices=[["1f1b", "1f1b", ""]], value="1f1b"
        )
        self.beside = ChoiceField(
            label="Beside it", hint="Another schedule on the same axis of time.", choices=[[_ALONE, "none", ""]],
            value=_ALONE,
        )  # fmt: skip
        self.window = ChoiceField(
            label="Shown", hint="A part is short enough to be drawn task by task.", choices=_WINDOWS, value="whole"
        )
        fields = [self.schedule, self.beside, self.window]
        for field in fields:
            field.observe(self._chosen, "value")
        return list(fields)

    def draw(self, plan: Plan, theme: str) -> go.Figure:
        """See `alpa_explore.figures.timeline`."""
        from alpa_explore.figures.timeline import timeline_figure  # late: plotly takes seconds to import

        return timeline_figure(plan, self.schedules(plan), theme=theme, window=self.window.value)

    def schedules(self, plan: Plan) -> tuple[str, ...]:
        """What is chosen, after the choices became those that exist for `plan`."""
        from alpa_explore.plans.timeline import possible_schedules

        names = possible_schedules(plan)
        for field, more in ((self.schedule, []), (self.beside, [[_ALONE, "none", ""]])):
            choices = more + [[name, name, ""] for name in names]
            if field.value not in [value for value, *_ in choices]:
                field.unobserve(self._chosen, "value")  # it is being drawn already
                field.value = choices[0][0]
                field.observe(self._chosen, "value")
            field.choices = choices
        chosen = (self.schedule.value, self.beside.value)
        return tuple(name for name in dict.fromkeys(chosen) if name != _ALONE)

    def _chosen(self, _change: dict[str, Any]) -> None:
        self.redraw()
