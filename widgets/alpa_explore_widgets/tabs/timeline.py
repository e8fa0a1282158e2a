"""The Timeline tab: one schedule or two, and the part of the iteration that is shown."""

from typing import Any, cast

import ipywidgets as W

from alpa_explore.figures.timelines.parts import Window
from alpa_explore.plans.plan import Plan
from alpa_explore_widgets.elements.documents import TimelinePlayer
from alpa_explore_widgets.elements.fields import choice_field, options
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel

_NONE = "none"
_WINDOWS = {
    "parts": "warm-up, steady, drain",
    "whole": "the whole iteration",
    "start": "its start",
    "middle": "its middle",
    "end": "its end",
}
_DRAGGED = "dragged"


class TimelinePanel(PlanPanel):
    """What does each stage do at what time?"""

    title, name, room = "Timeline", "timeline", "timelines"
    made_ahead = True
    question = "What does each stage do at what time, and what does it hold in memory?"

    def controls(self) -> list[W.Widget]:
        """The schedule, a second one, and the part of the iteration."""
        self._offered: Plan | None = None
        self.schedule = choice_field("Schedule", "The order of the tasks.", {"": ""})
        self.beside = choice_field("Beside it", "A second schedule on the same time axis.", {_NONE: "none"})
        hint = "The part of the iteration that is drawn. Drag across the strip at the bottom to choose another one."
        self.window = choice_field("Shown", hint, _WINDOWS)
        fields = [self.schedule, self.beside, self.window]
        self.watch(*fields)
        self.figure.observe(self._brushed, "brushed")
        return list(fields)

    def contents(self) -> list[W.Widget]:
        """The figure or the table, and the playback."""
        self.player = TimelinePlayer()
        return [*super().contents(), self.player]

    def follow(self, state: State) -> None:
        """Offer the schedules that are possible for the plan; its own is shown until another one is chosen."""
        assert state.plan is not None, "shown before there was a plan"
        if state.plan is self._offered:
            return
        from alpa_explore.plans.schedule_stages import possible_schedules

        self._offered = state.plan
        names = possible_schedules(state.plan)
        for field, offered in ((self.schedule, names), (self.beside, (_NONE, *names))):
            before = field.choices[0][0]
            field.choices = options(offered)
            if field.value == before or field.value not in offered:
                with self.quietly(field):
                    field.value = offered[0]

    def schedules(self) -> tuple[str, ...]:
        """The chosen schedules, one or two."""
        chosen = (self.schedule.value, self.beside.value)
        return tuple(name for name in dict.fromkeys(chosen) if name != _NONE)

    def depends_on(self, _state: State) -> tuple[object, ...]:
        """The choices above the figure."""
        return (*self.schedules(), self._shown_window())

    def arguments(self, _state: State) -> dict[str, Any]:
        """The schedules."""
        return {"schedules": self.schedules()}

    def figure_arguments(self, _state: State) -> dict[str, Any]:
        """The part of the iteration, and that another one can be dragged over."""
        return {"window": self._shown_window(), "brush": True}

    def update(self, state: State, theme: str, *, as_table: bool) -> None:
        """The figure, and then the playback, which gets the same timelines: the figure does not wait for it."""
        from alpa_explore.figures.timelines.playback import playback_document

        self.player.layout.display = "none" if as_table else None
        super().update(state, theme, as_table=as_table)
        if not as_table:
            plan = self.plan_of(state)
            self.player.load(playback_document(plan, self.schedules(), window=self._shown_window()))

    def _shown_window(self) -> Window:
        """The window of the figure: a name, or the part that was dragged over."""
        if self.window.value != _DRAGGED:
            return cast("Window", self.window.value)
        start, end = self.figure.brushed
        return start, end

    def _brushed(self, change: dict[str, Any]) -> None:
        """Show the part of the overview that was dragged over; after a double click on it the default."""
        dragged, field = bool(change["new"]), self.window
        with self.quietly(field):  # the value and its choice change together
            field.choices = options(_WINDOWS | ({_DRAGGED: "a part, dragged below"} if dragged else {}))
            field.value = _DRAGGED if dragged else "parts"
        self.redraw()
