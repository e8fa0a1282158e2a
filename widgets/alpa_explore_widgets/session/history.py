"""The plans that were shown, in order: a value with a place in it, for undo, redo, and the plans that were tried."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan
    from alpa_explore_widgets.session.state import Settings

MOST = 60
"""Entries that are kept; the oldest go first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """A plan and the settings that it answers."""

    settings: Settings
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class History:
    """`place` is the entry that is on screen; −1 where there is none."""

    entries: tuple[Entry, ...] = ()
    place: int = -1

    def add(self, entry: Entry, *, instead: bool = False) -> History:
        """With `entry` at the end and on screen; `instead` of the one that was (a slider that goes on moving).

        What was undone stays: a plan that was tried is not forgotten because another one followed.
        """
        kept = self.entries[:-1] if instead and self.place == len(self.entries) - 1 else self.entries
        entries = (*kept, entry)[-MOST:]
        return History(entries=entries, place=len(entries) - 1)

    def add_aside(self, entry: Entry) -> History:
        """With `entry` at the end, and on screen what was, or the oldest that is left where that had to go; the entry
        where nothing was."""
        longer = self.add(entry)
        gone = len(self.entries) + 1 - len(longer.entries)
        return longer.at(max(0, self.place - gone)) if self.place >= 0 else longer

    def at(self, place: int) -> History:
        """With another entry on screen."""
        assert 0 <= place < len(self.entries), "there is no such entry"
        return replace(self, place=place)

    @property
    def can_undo(self) -> bool:
        """Whether there is an entry before the one on screen."""
        return self.place > 0

    @property
    def can_redo(self) -> bool:
        """Whether there is an entry behind the one on screen."""
        return self.place < len(self.entries) - 1

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All plans that were shown."""
        return tuple(entry.plan for entry in self.entries)
