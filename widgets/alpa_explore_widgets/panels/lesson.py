"""Teaching mode: the lesson of the selected tab, and a button to the next one."""

from collections.abc import Callable

import ipywidgets as W

from alpa_explore.figures.keys import read_key
from alpa_explore.plans.report.text import pace_setter
from alpa_explore_widgets.elements.fields import Button
from alpa_explore_widgets.lessons import LESSONS, lesson_html
from alpa_explore_widgets.session.state import State


class LessonPanel:
    """The lesson above the figure; hidden while teaching mode is off, and in tabs without a lesson."""

    def __init__(self, go_to: Callable[[str], None]) -> None:
        self.on = False
        self._title = ""
        self.text = W.HTML()
        self.next = Button(lambda: go_to(next_tab(self._title)), hint="The next lesson")
        self.next.add_class("alpa-plain")
        self.widget = W.VBox([self.text, self.next])
        self.widget.add_class("alpa-lesson-panel")

    def show(self, state: State, title: str, tab_stage: int | None) -> None:
        """Update the lesson for the tab `title` and the plan on screen. Its example is the stage that the tab is about,
        else the selected stage, else the slowest one."""
        self._title = title
        plan = state.plan
        shown = self.on and plan is not None and title in LESSONS
        self.widget.layout.display = "" if shown else "none"
        if shown and plan is not None:
            self.next.description = f"Next: {next_tab(title)}"
            stage = tab_stage
            if stage is None:
                stage = int(read_key(state.selection).get("stage", pace_setter(plan).index))
            layouts = None if state.layouts is None else state.layouts.found
            scaling = None if state.scaling is None else state.scaling.found
            self.text.value = lesson_html(title, plan, stage, layouts=layouts, scaling=scaling)


def next_tab(title: str) -> str:
    """The tab after `title` in the order of the lessons; the first one after the last."""
    titles = list(LESSONS)
    return titles[(titles.index(title) + 1) % len(titles)]
