"""The result of planning: the sentence, the figures against the pinned plan, the stages."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import ipywidgets as W

from alpa_explore.plans.report import text
from alpa_explore.plans.report.error_bands import plan_bands_sentence
from alpa_explore_widgets.panels import headline

if TYPE_CHECKING:
    from alpa_explore_widgets.session.state import State


class SummaryPanel:
    """The top of the right column."""

    def __init__(self) -> None:
        self.text = W.HTML()
        self.widget = self.text

    def show(self, state: State, theme: str) -> None:
        """Update the summary."""
        plan = state.plan
        if plan is None:
            note = "Planning; figures appear with the first plan." if state.planning else "No plan yet: press Plan."
            self.text.value = f'<p class="alpa-sentence alpa-quiet">{note}</p>'
            return
        stale = " class='alpa-stale'" if state.out_of_date or state.fault else ""
        sentence = escape(f"{text.sentence(plan)} {plan_bands_sentence(plan)}")
        self.text.value = (
            f'<div{stale}><p class="alpa-sentence" title="{sentence}">{headline.sentence_html(plan)}</p>'
            f"{headline.tiles_html(plan, state.pinned)}{headline.differences_html(plan, state.pinned)}"
            f"{headline.stages_html(plan, theme)}</div>"
        )
