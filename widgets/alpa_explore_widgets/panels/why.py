"""The Why tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpa_explore_widgets.panels.figure_panel import FigurePanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan


class WhyPanel(FigurePanel):
    """Where does the time go, what holds the plan back, and what would a single change do?"""

    title = "Why"
    question = "Where does the time go, what holds the plan back, and what would a single change do?"

    def draw(self, plan: Plan, theme: str) -> go.Figure:
        """See `alpa_explore.figures.why`."""
        from alpa_explore.figures.why import why_figure  # late: plotly takes seconds to import

        return why_figure(plan, theme=theme)
