"""The Accuracy tab: how good the predictions are, from measured training runs that were published."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import ipywidgets as W

from alpa_explore.accuracy.record import stored_record
from alpa_explore.figures.style import Figure
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.error_bands import band_meaning, band_of
from alpa_explore.plans.report.tables import Row
from alpa_explore_widgets.elements.fields import CONTROLS, choice_field
from alpa_explore_widgets.elements.tables import table_html
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.figure_panel import FigurePanel, figure_function

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

    title, of_plan = "Accuracy", False
    question = "How good are these numbers? Published training runs, predicted and measured."

    def controls(self) -> list[W.Widget]:
        """The choice of the view."""
        self.view = choice_field(
            **CONTROLS["accuracy"]["view"], texts={name: text for name, (text, _, _) in _VIEWS.items()}
        )
        self.watch(self.view)
        return [self.view]

    def __init__(self) -> None:
        super().__init__()
        self.bands, self.details = W.HTML(), W.HTML()
        """Below the figure: the bands of the plan; a table of the sources or of known reasons."""
        self.widget.children = (*self.widget.children, self.bands, self.details)

    def follow(self, state: State) -> None:
        """Say how good the numbers of the plan on screen are."""
        if state.plan is not None:
            self.bands.value = bands_html(state.plan)

    def depends_on(self, _state: State) -> tuple[object, ...]:
        """The view."""
        return (self.view.value,)

    def draw(self, state: State, theme: str) -> Figure:
        """The figure of the view."""
        self.details.value = self._details(state)
        _, name, options = _VIEWS[self.view.value]
        figure: Figure = figure_function("accuracy", name, "figure")(stored_record(), theme=theme, **options)
        return figure.update_layout(uirevision=self.view.value)  # each view has a zoom of its own

    def rows(self, state: State) -> Sequence[Row]:
        """The table of the view."""
        self.details.value = ""
        rows: Sequence[Row] = figure_function("accuracy", _VIEWS[self.view.value][1], "table")(stored_record())
        return rows

    def _details(self, state: State) -> str:
        """The table below the figure; '' where the figure is all there is."""
        if self.view.value not in ("sources", "weak spots") or not stored_record().runs:
            return ""
        from alpa_explore.figures.accuracy.sources import sources_table  # late: plotly takes seconds to import
        from alpa_explore.figures.accuracy.weak_spots import reasons_table

        rows = (sources_table if self.view.value == "sources" else reasons_table)(stored_record())
        return table_html(rows, self.plan_of(state))


def bands_html(plan: Plan) -> str:
    """What error to expect of the times and sizes of a plan, and where that is known from."""
    bands = (("Times of this plan:", band_of(plan, "seconds")), ("Memory:", band_of(plan, "bytes")))
    parts = [f"<b>{what}</b> {escape(band_meaning(band), quote=False)}" for what, band in bands]
    return f'<p class="alpa-question">{". ".join(parts)}.</p>'
