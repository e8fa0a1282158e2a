"""The Cluster tab."""

from __future__ import annotations

from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel


class ClusterPanel(PlanPanel):
    """Which devices run which stage, and how full is their memory?"""

    title, name = "Cluster", "cluster"
    question = "Which devices run which stage, and how full is their memory?"
