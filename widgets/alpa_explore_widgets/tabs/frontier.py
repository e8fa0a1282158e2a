"""The Memory tab, with its choice of a stage."""

from __future__ import annotations

from alpa_explore_widgets.tab_kinds.stage_panel import StagePanel


class FrontierPanel(StagePanel):
    """How much slower does a stage become with less memory?"""

    title, name = "Memory", "frontier"
    question = "Which choices are known for a stage: how much slower is one that needs less memory?"
