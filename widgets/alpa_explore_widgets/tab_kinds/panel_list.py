"""The panels of the explorer, of which each is made when its tab is first selected, or before while nothing happens.

A panel is dozens of widgets, and each of them is a message to the page: all at once would take most of the time until
the first figure is seen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.background import NewestWins

if TYPE_CHECKING:
    from alpa_explore_widgets.tab_kinds.panel import Panel


@dataclass(frozen=True, slots=True, eq=False)
class Tab:
    """A tab whose panel may not be made yet."""

    group: str
    """The tabs of one group are chosen in a second row of tabs."""
    kind: type[Panel]
    """Has title, question and the other texts of the panel."""
    make: Callable[[], Panel]


class PanelList(Sequence["Panel"]):
    """The panels in the order of the tabs; asking for one makes it. `tabs` are their texts, for which none is made."""

    def __init__(self, tabs: Sequence[Tab], made: Callable[[Panel], None]) -> None:
        """`made` is called with each panel when it is made."""
        self.tabs = list(tabs)
        self._made: dict[Tab, Panel] = {}
        self._call = made

    @property
    def made(self) -> Sequence[Panel]:
        """The panels that are made, in the order in which they were."""
        return list(self._made.values())

    def at(self, title: str) -> int:
        """The place of a tab."""
        return [tab.kind.title for tab in self.tabs].index(title)

    def make_next(self) -> None:
        """Make the first panel that is not made."""
        tab = next((tab for tab in self.tabs if tab not in self._made), None)
        if tab is not None:
            self._panel(tab)

    def __len__(self) -> int:
        return len(self.tabs)

    @overload
    def __getitem__(self, place: int) -> Panel: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Panel]: ...

    def __getitem__(self, place: int | slice) -> Panel | Sequence[Panel]:
        if isinstance(place, slice):
            return [self._panel(tab) for tab in self.tabs[place]]
        return self._panel(self.tabs[place])

    def _panel(self, tab: Tab) -> Panel:
        if tab not in self._made:
            self._made[tab] = tab.make()
            self._call(self._made[tab])
        return self._made[tab]


class MadeWhenIdle:
    """Makes the panels of tabs that were not selected yet, one after the other while the state stays as it is.

    Each only after the page has said that it is there and has nothing to do: a page that is loaded meanwhile asks the
    kernel for its widgets once, and fails on those that are made before it listens; and anywidget gives up on a widget
    that a busy page cannot start within two seconds.
    """

    def __init__(
        self, panels: PanelList, lock: AbstractContextManager[object], ask_page: Callable[[int], None]
    ) -> None:
        """`lock` is held while a panel is made. `ask_page` is called with the number of a question, which the page
        passes to `page_is_ready`."""
        self._panels, self._lock, self._ask = panels, lock, ask_page
        self._question = 0
        self._worker: NewestWins[bool] = NewestWins(self._work, "alpa-explore tabs")

    def follow(self) -> None:
        """The state has changed: wait anew, and take no answer to an earlier question."""
        with self._lock:
            self._question += 1
            if self._more:
                self._worker.submit(False)

    def page_is_ready(self, question: int) -> None:
        """The page's answer: make one, and ask again."""
        with self._lock:
            if question == self._question and self._more:
                self._question += 1
                self._worker.submit(True)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until all are made or the page is asked (for tests). Returns False on a timeout."""
        return self._worker.wait(timeout)

    def close(self) -> None:
        """Make no more."""
        self._worker.cancel()

    @property
    def _more(self) -> bool:
        return len(self._panels.made) < len(self._panels)

    def _work(self, make: bool, cancel: threading.Event) -> None:
        if make:
            with self._lock:
                if not cancel.is_set():
                    self._panels.make_next()
        if cancel.wait(tuning.BETWEEN_TABS_SECONDS if make else tuning.IDLE_SECONDS):
            return
        with self._lock:
            if self._more and not cancel.is_set():
                self._question += 1
                self._ask(self._question)
