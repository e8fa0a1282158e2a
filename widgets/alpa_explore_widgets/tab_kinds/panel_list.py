"""The panels of the explorer, of which each is made when its tab is first selected.

A panel is dozens of widgets, and each of them is a message to the page: all at once would take most of the time until
the first figure is seen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

from alpa_explore_widgets.tab_kinds.panel import Panel


@dataclass(frozen=True, slots=True, eq=False)
class Tab:
    """A tab whose panel may not be made yet."""

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
