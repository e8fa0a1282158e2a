"""The Cluster tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpa_explore_widgets.panels.figure_panel import FigurePanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan


class ClusterPanel(FigurePanel):
    """Which devices run which stage, and how full is their memory?"""

    title = "Cluster"
    question = "Which devices run which stage, and how full is their memory?"

    def draw(self, plan: Plan, theme: str) -> go.Figure:
        """See `alpa_explore.figures.cluster`."""
        from alpa_explore.figures.cluster import cluster_figure  # late: plotly takes seconds to import

        return cluster_figure(plan, theme=theme)
