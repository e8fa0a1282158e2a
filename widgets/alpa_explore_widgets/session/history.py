"""The history of plans: an immutable list with the position of the plan on screen, for undo, redo and comparisons."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from alpa_explore_widgets.session import tuning

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan
    from alpa_explore_widgets.session.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """A plan and the settings that it was made with."""

    settings: Settings
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class History:
    """`position` is the index of the entry on screen; −1 when the history is empty."""

    entries: tuple[Entry, ...] = ()
    position: int = -1

    def add(self, entry: Entry, *, replace_last: bool = False) -> History:
        """The history with `entry` appended and shown. `replace_last` replaces the last entry if that is the one on
        screen (a slider that is still moving).

        Entries after the position are kept: a plan that was undone stays available for comparisons.
        """
        replaced = replace_last and self.position == len(self.entries) - 1
        entries = (*(self.entries[:-1] if replaced else self.entries), entry)[-tuning.HISTORY_ENTRIES :]
        return History(entries=entries, position=len(entries) - 1)

    def add_without_showing(self, entry: Entry) -> History:
        """The history with `entry` appended and the same entry on screen, or the oldest remaining one if the entry on
        screen was dropped; an empty history shows `entry`."""
        extended = self.add(entry)
        dropped = len(self.entries) + 1 - len(extended.entries)
        return extended.at(max(0, self.position - dropped)) if self.position >= 0 else extended

    def at(self, position: int) -> History:
        """The history with the entry at `position` on screen."""
        assert 0 <= position < len(self.entries), "no entry at this position"
        return replace(self, position=position)

    @property
    def can_undo(self) -> bool:
        """Whether there is an entry before the one on screen."""
        return self.position > 0

    @property
    def can_redo(self) -> bool:
        """Whether there is an entry after the one on screen."""
        return self.position < len(self.entries) - 1

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans of all entries."""
        return tuple(entry.plan for entry in self.entries)
