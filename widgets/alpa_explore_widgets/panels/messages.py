"""Error messages in the explorer: what failed, what was found, what to do."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import ipywidgets as W

if TYPE_CHECKING:
    from alpa_explore_widgets.session.fault import Fault
    from alpa_explore_widgets.session.state import State


class MessagesPanel:
    """The fault of the last piece of work; empty if there is none."""

    def __init__(self) -> None:
        self.widget = W.HTML()

    def show(self, state: State) -> None:
        """Update the message."""
        self.widget.value = message_html(state)


def message_html(state: State) -> str:
    """The fault in the state, or ''."""
    if state.fault is None:
        return ""
    return fault_html(state.fault, "The figures show the last plan that worked." if state.plan is not None else "")


def fault_html(fault: Fault, more: str = "", *, details: str = "Details", unfolded: bool = False) -> str:
    """What failed, what was found, what to do, and `more`. Its detail folds under the title `details`."""
    detail = ""
    if fault.detail:
        is_open = " open" if unfolded else ""
        detail = (
            f"<details{is_open}><summary>{escape(details)}</summary>"
            f'<pre tabindex="0">{escape(fault.detail)}</pre></details>'
        )
    return (
        f'<div class="alpa-message" role="alert"><p><b>{escape(fault.what)}:</b> {escape(fault.found)}.</p>'
        f"<p>{escape(fault.remedy)}{' ' if more else ''}{escape(more)}</p>{detail}</div>"
    )
