"""The Layers tab."""

from __future__ import annotations

from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel


class LayersPanel(PlanPanel):
    """Which operators make up each layer, and what crosses each cut?"""

    title, name = "Layers", "layers"
    question = "Which operators make up each layer, how much does each compute, and what crosses the cut after it?"
