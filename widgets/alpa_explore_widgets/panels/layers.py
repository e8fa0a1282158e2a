"""The Layers tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpa_explore_widgets.panels.figure_panel import FigurePanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan


class LayersPanel(FigurePanel):
    """Which operators make up each layer, how much each computes, and how many bytes cross the cut behind it?"""

    title = "Layers"
    question = "Which operators make up each layer, how much each computes, and how many bytes cross the cut behind it?"

    def draw(self, plan: Plan, theme: str) -> go.Figure:
        """See `alpa_explore.figures.layers`."""
        from alpa_explore.figures.layers import layers_figure  # late: plotly takes seconds to import

        return layers_figure(plan, theme=theme)
