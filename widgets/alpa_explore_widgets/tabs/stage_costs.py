"""The Costs tab."""

from __future__ import annotations

from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel


class StageCostsPanel(PlanPanel):
    """How long would any range of layers take on any submesh?"""

    title, name = "Costs", "stage_costs"
    question = "How long would any range of layers take on any submesh, and which of them does the plan use?"
