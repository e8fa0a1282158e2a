"""The Memory tab, with its choice of a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpa_explore_widgets.panels.stage_panel import StagePanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan


class FrontierPanel(StagePanel):
    """How much slower does a stage become with less memory?"""

    title = "Memory"
    question = "Which choices are known for a stage: how much slower is one that needs less memory?"

    def draw(self, plan: Plan, theme: str) -> go.Figure:
        """See `alpa_explore.figures.frontier`."""
        from alpa_explore.figures.frontier import frontier_figure

        return frontier_figure(plan, stage=self.chosen(plan), theme=theme)
