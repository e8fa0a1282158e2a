"""One tab: a question, and the figure that answers it for the present plan."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from html import escape, unescape
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar

import ipywidgets as W

from alpa_explore_widgets.elements.fields import Button
from alpa_explore_widgets.elements.plotly_figure import PlotlyFigure
from alpa_explore_widgets.elements.tables import table_html

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan
    from alpa_explore.plans.report.tables import Row
    from alpa_explore_widgets.session.state import State

TITLE_LINE_PIXELS = 20
"""Height of a line of a figure's title (`figures.style.dress`)."""
TOP_PIXELS = 28
"""What stays above a figure without its title: room for a legend and the tool bar."""
HEIGHT = 500
"""Pixels of a figure that names no height of its own: the whole explorer fits a 1400 × 900 screen."""


class FigurePanel(ABC):
    """Draws a figure from the plan, but only while its tab is shown; a change meanwhile makes it stale."""

    title: ClassVar[str]
    """On the tab."""
    question: ClassVar[str]
    """What the figure answers; shown above it."""

    def __init__(self) -> None:
        self.figure = PlotlyFigure(height=HEIGHT, label=f"{self.title}: waiting for the first plan")
        self.question_line = W.HTML(f'<p class="alpa-question">{self.question}</p>')
        self.finding, self.table = W.HTML(), W.HTML()
        head = W.HBox([self.question_line, *self.controls()])
        head.add_class("alpa-panel-head")
        self.widget = W.VBox([head, *self.below(), self.finding, self.figure, self.table])
        self.widget.add_class("alpa-panel")
        self.lock: AbstractContextManager[object] = RLock()
        """Held while the panel is drawn; the explorer gives it that of the state, which other threads change."""
        self._shown: tuple[State, str, bool] | None = None
        self._drawn: tuple[object, ...] = ()

    def controls(self) -> list[W.Widget]:
        """Widgets beside the question, none unless a panel has some."""
        return []

    def below(self) -> list[W.Widget]:
        """Widgets between the question and the figure."""
        return []

    def button(self, text: str, hint: str, press: Callable[[], None]) -> Button:
        """A button of the panel."""
        found = Button(press, description=text, hint=hint)
        found.add_class("alpa-plain")
        return found

    def plan_of(self, state: State) -> Plan:
        """What the figure is about."""
        assert state.plan is not None, "shown before there was a plan"
        return state.plan

    def busy(self, state: State) -> bool:
        """Whether another figure is being computed."""
        return state.replanning or (state.planning and state.plan is not None)

    def show(self, state: State, theme: str, *, as_table: bool = False) -> None:
        """Bring figure or table to the state; called only while the tab is visible."""
        self._shown = (state, theme, as_table)
        self.follow(state)
        self.figure.selection = state.selection
        assert state.plan is not None, "shown before there was a plan"
        seen = (as_table, state.plan, theme, *self.depends_on(state))
        if len(seen) == len(self._drawn) and all(a is b or a == b for a, b in zip(seen, self._drawn, strict=True)):
            return
        self._drawn = seen
        self.table.layout.display = "" if as_table else "none"
        self.figure.layout.display = "none" if as_table else None
        try:
            if as_table:
                self.finding.value = ""
                self.table.value = table_html(self.rows(state), self.plan_of(state), self.stage_of_rows())
                return
            figure = self.draw(state, theme)
        except Exception as error:  # one figure that fails must not take the explorer with it
            self.finding.value = fault_html(self.title, error)
            self.figure.layout.display = "none"
            return
        plan = self.plan_of(state)
        name = plan.model.name
        if figure.layout.uirevision is None:
            figure.update_layout(uirevision=name)  # a zoom outlives a change of B
        found = lift_title(figure)
        self.finding.value = f'<p class="alpa-finding">{found}</p>'
        self.figure.draw(figure, f"{self.title} of {name} on {plan.cluster}. {unescape(found)}")

    def redraw(self) -> None:
        """Draw again what is shown, after a control of the panel changed."""
        with self.lock:
            if self._shown is not None:
                self._drawn = ()
                state, theme, as_table = self._shown
                self.show(state, theme, as_table=as_table)

    def depends_on(self, _state: State) -> tuple[object, ...]:
        """What else than the plan the figure is drawn from; marks are faded without drawing it again."""
        return ()

    def follow(self, _state: State) -> None:
        """Bring the panel's own controls to the state, before it is drawn."""
        return

    def stage_of_rows(self) -> int | None:
        """The stage that all rows of the table are about."""
        return None

    @abstractmethod
    def draw(self, state: State, theme: str) -> go.Figure:
        """The figure; `theme` is 'light' or 'dark'."""

    @abstractmethod
    def rows(self, state: State) -> Sequence[Row]:
        """The same as a table."""


class PlanPanel(FigurePanel):
    """A figure of the plan alone: `name`_figure(plan, theme) and `name`_table(plan) of `alpa_explore.figures.name`."""

    name: ClassVar[str]
    """Of the module."""
    room: ClassVar[str] = "decisions"
    """The room of `alpa_explore.figures` that holds it."""

    def draw(self, state: State, theme: str) -> go.Figure:
        """See the module."""
        figure: go.Figure = self._of("figure")(state.plan, theme=theme)
        return figure

    def rows(self, state: State) -> Sequence[Row]:
        """See the module."""
        found: Sequence[Row] = self._of("table")(state.plan)
        return found

    def _of(self, what: str) -> Callable[..., Any]:
        module = import_module(f"alpa_explore.figures.{self.room}.{self.name}")  # late: plotly takes seconds to import
        verb: Callable[..., Any] = getattr(module, f"{self.name}_{what}")
        return verb


def note_figure(text: str, theme: str) -> go.Figure:
    """Where there is nothing to draw yet: how to get something."""
    import plotly.graph_objects as go  # late: plotly takes seconds to import

    from alpa_explore.figures.style import dress

    empty = go.Figure().update_xaxes(visible=False).update_yaxes(visible=False)
    return dress(empty, text, theme=theme, height=300, uirevision="nothing")  # its axes are no zoom to keep


def lift_title(figure: go.Figure) -> str:
    """Take the title out of a figure and close the gap: above it, as text of the page, it wraps and can be selected."""
    lines = (figure.layout.title.text or "").split("<br>")
    figure.layout.title.text = ""
    top = figure.layout.margin.t
    if top is not None:
        kept = max(TOP_PIXELS, top - TITLE_LINE_PIXELS * len(lines) - TOP_PIXELS // 2)
        if figure.layout.height is not None:
            figure.layout.height -= top - kept
        figure.layout.margin.t = kept
    return " ".join(lines)


def fault_html(title: str, error: Exception) -> str:
    """A fault of a figure, where the figure should be."""
    detail = escape("".join(traceback.format_exception(error)))
    return (
        f'<div class="alpa-message" role="alert"><p><b>The {escape(title)} figure failed:</b> '
        f"{escape(type(error).__name__)}: {escape(str(error))}</p><p>The others are not affected. This is a fault of "
        f"alpa_explore: please report it.</p><details><summary>Details</summary><pre>{detail}</pre></details></div>"
    )
