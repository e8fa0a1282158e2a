"""The Accuracy tab: how good the predictions are, from measured training runs that were published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

import ipywidgets as W

from alpa_explore.accuracy.record import stored_record
from alpa_explore.plans.report.error_bands import band_meaning, band_of, band_short, plan_bands_sentence
from alpa_explore_widgets.elements.fields import ChoiceField
from alpa_explore_widgets.elements.tables import table_html
from alpa_explore_widgets.tab_kinds.figure_panel import FigurePanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan
    from alpa_explore.plans.report.tables import Row
    from alpa_explore_widgets.session.state import State

_VIEWS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "time": ("iteration times, every run", "predictions", {"quantity": "seconds"}),
    "memory": ("memory, every run", "predictions", {"quantity": "bytes"}),
    "sources": ("errors by source", "sources", {}),
    "choices": ("choice of a layout", "layout_choices", {}),
    "weak spots": ("where it is wrong", "weak_spots", {}),
}
"""View -> (its name, module in `figures.accuracy`, options of its figure)."""


class AccuracyPanel(FigurePanel):
    """How good are these numbers?"""

    title = "Accuracy"
    question = "How good are these numbers? Published training runs, predicted and measured."

    def controls(self) -> list[W.Widget]:
        """The choice of the view."""
        self.view = ChoiceField(
            label="Show",
            hint="Every run, the errors of each source, how well layouts are chosen, or the kinds of runs that are "
            "predicted worst.",
            choices=[[name, text, ""] for name, (text, _, _) in _VIEWS.items()],
            value="time",
        )
        self.view.observe(self._chosen, "value")
        return [self.view]

    def __init__(self) -> None:
        super().__init__()
        self.details = W.HTML()
        """What stands below the figure: the bands of this plan, and a table of the sources or of known reasons."""
        self.widget.children = (*self.widget.children, self.details)

    def follow(self, state: State) -> None:
        """Say how good the numbers of the plan on screen are."""
        if state.plan is not None:
            self.question_line.value = question_html(state.plan)

    def depends_on(self, _state: State) -> tuple[object, ...]:
        """The view."""
        return (self.view.value,)

    def draw(self, state: State, theme: str) -> go.Figure:
        """The figure of the view."""
        self.details.value = self._details(state)
        _, name, options = _VIEWS[self.view.value]
        figure: go.Figure = _function(name, "figure")(stored_record(), theme, **options)
        return figure.update_layout(uirevision=self.view.value)  # each view has a zoom of its own

    def rows(self, state: State) -> Sequence[Row]:
        """The table of the view."""
        self.details.value = ""
        rows: Sequence[Row] = _function(_VIEWS[self.view.value][1], "table")(stored_record())
        return rows

    def _details(self, state: State) -> str:
        """The bands in full, and the table that belongs to the view."""
        assert state.plan is not None, "shown before there was a plan"
        bands = bands_html(state.plan)
        kind = {"sources": "sources_table", "weak spots": "reasons_table"}.get(self.view.value)
        if kind is None or not stored_record().runs:
            return bands
        name = _VIEWS[self.view.value][1]
        rows = getattr(import_module(f"alpa_explore.figures.accuracy.{name}"), kind)(stored_record())
        return bands + table_html(rows, state.plan)

    def _chosen(self, _change: dict[str, Any]) -> None:
        self.redraw()


def question_html(plan: Plan) -> str:
    """The question, answered for the plan on screen as shortly as possible; the tooltip has the whole answer."""
    times, memory = (band_short(band_of(plan, quantity)) for quantity in ("seconds", "bytes"))
    return (
        f'<p class="alpa-question" title="{escape(plan_bands_sentence(plan))}">How good are these numbers? Times '
        f"{times}, memory {memory}.</p>"
    )


def bands_html(plan: Plan) -> str:
    """What error to expect of the times and sizes of a plan, and where that is known from."""
    parts = [
        f"<b>{what}</b> {escape(band_meaning(band_of(plan, quantity)), quote=False)}"
        for what, quantity in (("Times of this plan:", "seconds"), ("Memory:", "bytes"))
    ]
    return f'<p class="alpa-question">{". ".join(parts)}.</p>'


def _function(name: str, kind: str) -> Callable[..., Any]:
    module = import_module(f"alpa_explore.figures.accuracy.{name}")  # late: plotly takes seconds to import
    function: Callable[..., Any] = getattr(module, f"{name}_{kind}")
    return function
