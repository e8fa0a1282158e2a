"""An error, in place: what failed, what was found, what to do."""

from __future__ import annotations

from html import escape

import ipywidgets as W

from alpa_explore_widgets.state import State


class MessagesPanel:
    """Nothing when all is well."""

    def __init__(self) -> None:
        self.widget = W.HTML()

    def show(self, state: State) -> None:
        """Bring the message to the state."""
        self.widget.value = message_html(state)


def message_html(state: State) -> str:
    """The problem of the last run, or ''."""
    problem = state.problem
    if problem is None:
        return ""
    kept = " The figures show the last plan that worked." if state.plan is not None else ""
    detail = ""
    if problem.detail:
        detail = f"<details><summary>Details</summary><pre>{escape(problem.detail)}</pre></details>"
    return (
        f'<div class="alpa-message" role="alert"><p><b>{escape(problem.what)}:</b> {escape(problem.found)}.</p>'
        f"<p>{escape(problem.remedy)}{kept}</p>{detail}</div>"
    )
