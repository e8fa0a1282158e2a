"""The base classes of the tabs: a question, and the figure or table that answers it for the plan on screen."""

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

from alpa_explore.figures.style import TOOL_PIXELS
from alpa_explore_widgets.elements.fields import Button
from alpa_explore_widgets.elements.plotly_figure import PlotlyFigure
from alpa_explore_widgets.elements.tables import table_html

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan
    from alpa_explore.plans.report.tables import Row
    from alpa_explore_widgets.session.state import State

TITLE_LINE_PIXELS = 20
"""Height of one line of a figure's title (`figures.style.dress`)."""
TOP_PIXELS = 28
"""Margin above a figure without its title: room for a legend."""
RIGHT_PIXELS = 12
"""Least margin on the right: half of the last label of an axis."""
HEIGHT = 500
"""Default height of a figure in pixels: the whole explorer fits a 1400 × 900 screen."""


class FigurePanel(ABC):
    """A tab. Its figure is drawn only while the tab is selected; after a change meanwhile it is drawn on selection."""

    title: ClassVar[str]
    """The text of the tab."""
    question: ClassVar[str]
    """The question that the figure answers; shown above it."""
    of_plan: ClassVar[bool] = True
    """Whether figure and table change with the plan."""

    def __init__(self) -> None:
        self.figure = PlotlyFigure(height=HEIGHT, label=f"{self.title}: waiting for the first plan")
        self.question_line = W.HTML(f'<p class="alpa-question">{self.question}</p>')
        self.finding, self.table = W.HTML(), W.HTML()
        controls = W.HBox(self.controls())
        controls.add_class("alpa-panel-controls")
        head = W.HBox([self.question_line, *([controls] if controls.children else [])])
        head.add_class("alpa-panel-head")
        self.widget = W.VBox([head, *self.below(), self.finding, self.figure, self.table])
        self.widget.add_class("alpa-panel")
        self.lock: AbstractContextManager[object] = RLock()
        """Held while the panel is drawn; the explorer replaces it by the lock of its state."""
        self._shown: tuple[State, str, bool] | None = None
        self._drawn: tuple[object, ...] = ()

    def controls(self) -> list[W.Widget]:
        """Widgets beside the question; none by default."""
        return []

    def below(self) -> list[W.Widget]:
        """Widgets between the question and the figure."""
        return []

    def button(self, text: str, hint: str, press: Callable[[], None]) -> Button:
        """A button of the panel."""
        button = Button(press, description=text, hint=hint)
        button.add_class("alpa-plain")
        return button

    def plan_of(self, state: State) -> Plan:
        """The plan that the figure shows."""
        assert state.plan is not None, "shown before there was a plan"
        return state.plan

    def busy(self, state: State) -> bool:
        """Whether another figure is being computed."""
        return state.replanning or (state.planning and state.plan is not None)

    def show(self, state: State, theme: str, *, as_table: bool = False) -> None:
        """Update the figure or the table; called only while the tab is selected."""
        self._shown = (state, theme, as_table)
        self.follow(state)
        self.figure.selection = state.selection
        assert state.plan is not None, "shown before there was a plan"
        inputs = (as_table, state.plan if self.of_plan else None, theme, *self.depends_on(state))
        if len(inputs) == len(self._drawn) and all(a is b or a == b for a, b in zip(inputs, self._drawn, strict=True)):
            return
        self._drawn = inputs
        self.table.layout.display = "" if as_table else "none"
        self.figure.layout.display = "none" if as_table else None
        try:
            if as_table:
                self.finding.value = ""
                self.table.value = table_html(self.rows(state), self.plan_of(state), self.stage_of_rows())
                return
            figure = self.draw(state, theme)
        except Exception as error:  # a figure that fails must not break the rest of the explorer
            self.finding.value = figure_fault_html(self.title, error)
            self.figure.layout.display = "none"
            return
        plan = self.plan_of(state)
        name = plan.model.name
        if figure.layout.uirevision is None:
            figure.update_layout(uirevision=name)  # a zoom survives a change of B
        title = lift_title(figure)
        self.finding.value = f'<p class="alpa-finding">{title}</p>'
        self.figure.draw(figure, f"{self.title} of {name} on {plan.cluster}. {unescape(title)}")

    def redraw(self) -> None:
        """Draw again after a control of the panel changed."""
        with self.lock:
            if self._shown is not None:
                self._drawn = ()
                state, theme, as_table = self._shown
                self.show(state, theme, as_table=as_table)

    def depends_on(self, _state: State) -> tuple[object, ...]:
        """The inputs of the figure besides plan and theme. (The selection is none: the browser fades marks.)"""
        return ()

    def follow(self, _state: State) -> None:
        """Update the panel's own controls, before the figure is drawn."""
        return

    def stage_of_rows(self) -> int | None:
        """The stage that all rows of the table are about; None if there is none."""
        return None

    @abstractmethod
    def draw(self, state: State, theme: str) -> go.Figure:
        """The figure; `theme` is 'light' or 'dark'."""

    @abstractmethod
    def rows(self, state: State) -> Sequence[Row]:
        """The rows of the table that shows the same as the figure."""


class PlanPanel(FigurePanel):
    """A tab whose figure and table are NAME_figure(plan, theme) and NAME_table(plan) of module NAME (`name`) in a room
    of alpa_explore.figures (`room`)."""

    name: ClassVar[str]
    """The module of the figure."""
    room: ClassVar[str] = "decisions"
    """The package of `alpa_explore.figures` that holds it."""

    def draw(self, state: State, theme: str) -> go.Figure:
        """The figure of the module `name`."""
        figure: go.Figure = self._function("figure")(state.plan, theme=theme)
        return figure

    def rows(self, state: State) -> Sequence[Row]:
        """The table of the module `name`."""
        rows: Sequence[Row] = self._function("table")(state.plan)
        return rows

    def _function(self, kind: str) -> Callable[..., Any]:
        module = import_module(f"alpa_explore.figures.{self.room}.{self.name}")  # late: plotly takes seconds to import
        function: Callable[..., Any] = getattr(module, f"{self.name}_{kind}")
        return function


def note_figure(text: str, theme: str) -> go.Figure:
    """An empty figure with a title: what to do to get a figure."""
    import plotly.graph_objects as go  # late: plotly takes seconds to import

    from alpa_explore.figures.style import dress

    empty = go.Figure().update_xaxes(visible=False).update_yaxes(visible=False)
    return dress(empty, text, theme=theme, height=300, uirevision="nothing")  # a zoom of its axes need not be kept


def lift_title(figure: go.Figure) -> str:
    """Remove and return the title of a figure: as text of the page above the figure it wraps and can be selected.

    The margin for the tool bar is removed as well: on the page it stands beside the figure (`explorer.css`).
    """
    lines = (figure.layout.title.text or "").split("<br>")
    figure.layout.title.text = ""
    top, right = figure.layout.margin.t, figure.layout.margin.r
    if right is not None:
        figure.layout.margin.r = max(right - TOOL_PIXELS, RIGHT_PIXELS)
    if top is not None:
        new_top = max(TOP_PIXELS, top - TITLE_LINE_PIXELS * len(lines) - TOP_PIXELS // 2)
        if figure.layout.height is not None:
            figure.layout.height -= top - new_top
        figure.layout.margin.t = new_top
    return " ".join(lines)


def figure_fault_html(title: str, error: Exception) -> str:
    """The error of a figure that could not be drawn, shown in its place."""
    detail = escape("".join(traceback.format_exception(error)))
    return (
        f'<div class="alpa-message" role="alert"><p><b>The {escape(title)} figure failed:</b> '
        f"{escape(type(error).__name__)}: {escape(str(error))}</p><p>The others are not affected. This is a fault of "
        f"alpa_explore: please report it.</p><details><summary>Details</summary><pre>{detail}</pre></details></div>"
    )
