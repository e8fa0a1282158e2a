"""Error messages in the explorer: what failed, what was found, what to do."""

from collections.abc import Callable
from functools import partial
from html import escape

import ipywidgets as W

from alpa_explore_widgets.elements.fields import Button
from alpa_explore_widgets.elements.page_widget import box
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.session.values import Fault, Offer, Offers


class MessagesPanel:
    """The fault of the last piece of work, with a button for each change that was found to help; empty if there is
    none. `take` is called with the offer whose button is pressed."""

    def __init__(self, take: Callable[[Offer], None]) -> None:
        self._take = take
        self._shown: tuple[Offer, ...] = ()
        self.text, self.buttons = W.HTML(), box("alpa-buttons")
        self.buttons.layout.display = "none"
        self.widget = W.VBox([self.text, self.buttons])

    def show(self, state: State) -> None:
        """Update the message."""
        self.text.value = message_html(state)
        offers = state.offers.offers if state.offers is not None and state.fault is not None else ()
        if offers == self._shown:
            return
        self._shown = offers
        self.buttons.layout.display = "" if offers else "none"
        self.buttons.children = [
            Button(partial(self._take, offer), description=offer.button, hint=f"{offer.found}: set this and plan")
            for offer in offers
        ]


def message_html(state: State) -> str:
    """The fault in the state, or ''."""
    if state.fault is None:
        return ""
    last = "The figures show the last plan that worked." if state.plan is not None else ""
    return fault_html(state.fault, last, found=offers_text(state.offers))


def offers_text(offers: Offers | None) -> str:
    """What was found to help, in words; '' where nothing is sought."""
    if offers is None:
        return ""
    found = [offers.at_least, *(offer.found for offer in offers.offers)]
    text = "; ".join(filter(None, found))
    if offers.searching:
        return f"{text}; looking for more…" if text else "Looking for what would fit…"
    return f"{text}." if text else ""


def fault_html(
    fault: Fault, more: str = "", *, found: str = "", details: str = "Details", unfolded: bool = False
) -> str:
    """What failed, what was `found` to help, what to do, and `more`. Its detail folds under the title `details`;
    `unfolded` is for a log: it is open, and shows its end."""
    detail = ""
    if fault.detail:
        is_open, kind = (" open", ' class="alpa-log"') if unfolded else ("", "")
        detail = (
            f"<details{is_open}><summary>{escape(details)}</summary>"
            f'<pre tabindex="0"{kind}><span>{escape(fault.detail)}</span></pre></details>'
        )
    return (
        f'<div class="alpa-message" role="alert"><p><b>{escape(fault.what)}:</b> {escape(fault.found)}.</p>'
        f"{f'<p><b>{escape(found)}</b></p>' if found else ''}"
        f"<p>{escape(fault.remedy)}{' ' if more else ''}{escape(more)}</p>{detail}</div>"
    )
