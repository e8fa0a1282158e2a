"""The t_max tab."""

from __future__ import annotations

from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel


class TMaxPanel(PlanPanel):
    """How slow may the slowest stage be?"""

    title, name = "t_max", "t_max"
    question = "How slow may the slowest stage be? Each t_max gives T = Σt + (B − 1) · t_max; the least T is the plan."
