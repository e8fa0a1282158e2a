"""The Microbatches tab."""

from __future__ import annotations

from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel


class MicrobatchesPanel(PlanPanel):
    """What would more or fewer microbatches change?"""

    title, name = "Microbatches", "microbatches"
    room = "comparisons"
    question = "What would more or fewer microbatches change: T, the throughput, and the memory of a device?"
