"""The Microbatches tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpa_explore_widgets.panels.figure_panel import FigurePanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan


class MicrobatchesPanel(FigurePanel):
    """What would more or fewer microbatches do?"""

    title = "Microbatches"
    question = "What would more or fewer microbatches do: to T, to the throughput, and to what a device holds?"

    def draw(self, plan: Plan, theme: str) -> go.Figure:
        """See `alpa_explore.figures.microbatches`."""
        from alpa_explore.figures.microbatches import microbatches_figure  # late: plotly takes seconds to import

        return microbatches_figure(plan, theme=theme)
