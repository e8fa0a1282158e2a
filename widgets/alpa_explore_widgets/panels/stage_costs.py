"""The Costs tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpa_explore_widgets.panels.figure_panel import FigurePanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan


class StageCostsPanel(FigurePanel):
    """How long would any run of layers take on any submesh, and which of them does the plan use?"""

    title = "Costs"
    question = "How long would any run of layers take on any submesh, and which of them does the plan use?"

    def draw(self, plan: Plan, theme: str) -> go.Figure:
        """See `alpa_explore.figures.stage_costs`."""
        from alpa_explore.figures.stage_costs import stage_costs_figure  # late: plotly takes seconds to import

        return stage_costs_figure(plan, theme=theme)
