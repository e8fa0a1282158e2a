"""The Overview tab: the plan in four small figures."""

import gzip
from collections.abc import Callable, Sequence

import ipywidgets as W

from alpa_explore.plans.report.tables import Row, stages_table
from alpa_explore_widgets.elements.documents import LinkedView
from alpa_explore_widgets.elements.page_widget import PageFigure
from alpa_explore_widgets.elements.tables import table_html
from alpa_explore_widgets.overview.cards import overview_html
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.panel import Panel


class OverviewPanel(Panel):
    """How is the model divided, what does each device do when, and why does it take so long?"""

    title = "Overview"
    made_ahead = True
    question = "How is the model divided, what does each device do when, and where does the time go?"

    def __init__(self, go_to: Callable[[str], None]) -> None:
        self.view, self.table = LinkedView(go_to), W.HTML()
        super().__init__()

    @property
    def figures(self) -> Sequence[PageFigure]:
        """The four figures are one view."""
        return (self.view,)

    def contents(self) -> list[W.Widget]:
        """The figures and the table, of which one is hidden."""
        return [self.view, self.table]

    def update(self, state: State, theme: str, *, as_table: bool) -> None:
        """Draw the figures, in colours that do not depend on the theme, or make the table."""
        self.table.layout.display = "" if as_table else "none"
        self.view.layout.display = "none" if as_table else None
        self.finding.value = ""
        if as_table:
            self.table.value = table_html(self.rows(state), self.plan_of(state))
        else:
            self.view.html = overview_html(self.plan_of(state))

    def packed(self, state: State, theme: str) -> bytes:
        """The figures for a state."""
        return gzip.compress(overview_html(self.plan_of(state)).encode(), 3)

    def rows(self, state: State) -> Sequence[Row]:
        """The stages."""
        return stages_table(self.plan_of(state))
