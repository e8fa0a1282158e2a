"""The Sharding tab, with its choice of a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpa_explore_widgets.panels.stage_panel import StagePanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan


class ShardingPanel(StagePanel):
    """How is every operator of a stage divided over the axes of its logical mesh?"""

    title = "Sharding"
    question = "How is each operator of a stage divided over the mesh, and what does it cost to bring its inputs there?"

    def draw(self, plan: Plan, theme: str) -> go.Figure:
        """See `alpa_explore.figures.sharding`."""
        from alpa_explore.figures.sharding import sharding_figure

        return sharding_figure(plan, stage=self.chosen(plan), theme=theme)
