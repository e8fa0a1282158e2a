"""The Memory tab."""

from __future__ import annotations

from alpa_explore_widgets.tab_kinds.stage_panel import StagePanel


class FrontierPanel(StagePanel):
    """How much slower does a stage become with less memory?"""

    title, name = "Memory", "frontier"
    question = "Which solutions are known for a stage, and how much slower are those that need less memory?"
