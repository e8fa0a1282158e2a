"""One tab: a question, and the figure that answers it for the present plan."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from html import escape, unescape
from typing import TYPE_CHECKING, ClassVar

import ipywidgets as W

from alpa_explore_widgets.plotly_figure import PlotlyFigure

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan

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
        self.finding = W.HTML()
        head = W.HBox([self.question_line, *self.controls()])
        head.add_class("alpa-panel-head")
        self.widget = W.VBox([head, self.finding, self.figure])
        self.widget.add_class("alpa-panel")
        self._shown: tuple[Plan, str] | None = None

    def controls(self) -> list[W.Widget]:
        """Widgets beside the question, none unless a panel has some."""
        return []

    def show(self, plan: Plan, theme: str, *, again: bool = False) -> None:
        """Draw `plan` unless it is on screen already; called only while the tab is visible."""
        if not again and self._shown is not None and self._shown[0] is plan and self._shown[1] == theme:
            return
        self._shown = (plan, theme)
        try:
            figure = self.draw(plan, theme)
        except Exception as error:  # one figure that fails must not take the explorer with it
            self.finding.value = fault_html(self.title, error)
            self.figure.layout.display = "none"
            return
        self.figure.layout.display = None
        figure.update_layout(uirevision=plan.model.name)  # a zoom outlives a change of B
        found = lift_title(figure)
        self.finding.value = f'<p class="alpa-finding">{found}</p>'
        self.figure.draw(figure, f"{self.title} of {plan.model.name} on {plan.cluster}. {unescape(found)}")

    def redraw(self) -> None:
        """Draw again what is shown, after a control of the panel changed."""
        if self._shown is not None:
            self.show(*self._shown, again=True)

    @abstractmethod
    def draw(self, plan: Plan, theme: str) -> go.Figure:
        """The figure; `theme` is 'light' or 'dark'."""


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
