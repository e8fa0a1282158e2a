"""The t_max tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpa_explore_widgets.panels.figure_panel import FigurePanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan


class TMaxPanel(FigurePanel):
    """How slow may the slowest stage be?"""

    title = "t_max"
    question = "How slow may the slowest stage be? Each t_max gives T = Σt + (B − 1) · t_max; the least T is the plan."

    def draw(self, plan: Plan, theme: str) -> go.Figure:
        """See `alpa_explore.figures.t_max`."""
        from alpa_explore.figures.t_max import t_max_figure  # late: plotly takes seconds to import

        return t_max_figure(plan, theme=theme)
