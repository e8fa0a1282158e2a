"""What the plan comes to: the sentence, the figures against the pinned plan, the stages."""

from __future__ import annotations

import ipywidgets as W

from alpa_explore_widgets.panels import headline
from alpa_explore_widgets.session.state import State


class SummaryPanel:
    """The top of the right column."""

    def __init__(self) -> None:
        self.text = W.HTML()
        self.widget = self.text

    def show(self, state: State, theme: str) -> None:
        """Bring the summary to the state."""
        plan = state.plan
        if plan is None:
            waiting = (
                "Planning; the figures come with the first plan." if state.planning else "No plan yet: press Plan."
            )
            self.text.value = f'<p class="alpa-sentence alpa-quiet">{waiting}</p>'
            return
        stale = " class='alpa-stale'" if state.out_of_date or state.problem else ""
        self.text.value = (
            f'<div{stale}><p class="alpa-sentence">{headline.sentence(plan)}</p>'
            f"{headline.tiles(plan, state.pinned)}{headline.apart(plan, state.pinned)}"
            f"{headline.stages(plan, theme)}</div>"
        )
