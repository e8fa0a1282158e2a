"""An error, in place: what failed, what was found, what to do."""

from __future__ import annotations

from html import escape

import ipywidgets as W

from alpa_explore_widgets.session.state import Problem, State


class MessagesPanel:
    """Nothing when all is well."""

    def __init__(self) -> None:
        self.widget = W.HTML()

    def show(self, state: State) -> None:
        """Bring the message to the state."""
        self.widget.value = message_html(state)


def message_html(state: State) -> str:
    """The problem of the last run, or ''."""
    if state.problem is None:
        return ""
    return problem_html(state.problem, "The figures show the last plan that worked." if state.plan is not None else "")


def problem_html(problem: Problem, more: str = "", *, details: str = "Details", unfolded: bool = False) -> str:
    """What failed, what was found, what to do, and `more`; its details, under their name, fold."""
    detail = ""
    if problem.detail:
        fold = " open" if unfolded else ""
        detail = (
            f"<details{fold}><summary>{escape(details)}</summary>"
            f'<pre tabindex="0">{escape(problem.detail)}</pre></details>'
        )
    return (
        f'<div class="alpa-message" role="alert"><p><b>{escape(problem.what)}:</b> {escape(problem.found)}.</p>'
        f"<p>{escape(problem.remedy)}{' ' if more else ''}{escape(more)}</p>{detail}</div>"
    )
