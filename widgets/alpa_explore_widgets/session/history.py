"""The history of plans: an immutable list, with which of them is on screen, for back, forward and comparisons."""

from __future__ import annotations

from dataclasses import dataclass, replace

from alpa_explore.plans.plan import Plan
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Entry:
    """A plan and the settings that it was made with."""

    settings: Settings
    plan: Plan
    kept: bool = False
    """Pinned by the user: it is neither dropped nor replaced by another value of a slider."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class History:
    """Every plan that was made, once: a plan that answers what another one did takes its place, so that all who count
    plans count the same. `position` is the index of the entry on screen; −1 when the history is empty."""

    entries: tuple[Entry, ...] = ()
    position: int = -1
    before: tuple[Plan, ...] = ()
    """The plans that were on screen before, the last one last: back and forward are those of a browser."""
    after: tuple[Plan, ...] = ()
    """Those from which the user went back, the next one last."""
    appended: bool = False
    """Whether the plan on screen came as a new entry, the last one."""

    def place(self, settings: Settings, baseline: str = "") -> int:
        """The index of the plan that was made with these settings, by the planner or as this baseline; −1 for none."""
        entries = enumerate(self.entries)
        same = (at for at, e in entries if e.settings == settings and e.plan.options.baseline == baseline)
        return next(same, -1)

    def add(self, entry: Entry, *, replace_last: bool = False) -> History:
        """The history with `entry` shown: in place of the one that answers the same, else appended. `replace_last`
        replaces the last entry if that is the one on screen (a slider that is still moving).

        Entries after the position are kept: a plan that was undone stays available for comparisons.
        """
        kept = self.kept_by_add(replace_last=replace_last)
        before = self._left if len(kept) == len(self.entries) else self.before
        is_new = self.place(entry.settings, entry.plan.options.baseline) < 0
        found = replace(self, entries=kept, before=before, after=(), appended=is_new)._extended(entry)
        if found.before and found.before[-1] is entry.plan:  # a slider that came back
            found = replace(found, before=found.before[:-1])
        return replace(found, position=found.place(entry.settings, entry.plan.options.baseline))

    def kept_by_add(self, *, replace_last: bool) -> tuple[Entry, ...]:
        """The entries that `add` keeps while there is room."""
        last = len(self.entries) - 1
        replaced = replace_last and self.appended and self.position == last and not self.entries[last].kept
        return self.entries[:-1] if replaced else self.entries

    def add_without_showing(self, entry: Entry) -> History:
        """The history with `entry` and the same entry on screen, or the oldest remaining one if the entry on screen was
        dropped; an empty history shows `entry`."""
        return self.add(entry) if self.position < 0 else self._extended(entry)

    def _extended(self, entry: Entry) -> History:
        """With `entry` in place of the one that answers the same, wherever that one is, or after all others, of which
        one may have to go."""
        same = self.place(entry.settings, entry.plan.options.baseline)
        if same >= 0:
            old, new = self.entries[same], replace(entry, kept=self.entries[same].kept)

            def renewed(plans: tuple[Plan, ...]) -> tuple[Plan, ...]:
                return tuple(new.plan if plan is old.plan else plan for plan in plans)

            entries = (*self.entries[:same], new, *self.entries[same + 1 :])
            return replace(self, entries=entries, before=renewed(self.before), after=renewed(self.after))
        entries = (*self.entries, entry)
        dropped = _dropped(entries)
        if dropped is None:
            return replace(self, entries=entries)
        shown = self.position - (dropped < self.position)
        return replace(self, entries=entries[:dropped] + entries[dropped + 1 :], position=shown)

    def keep(self, position: int, *, on: bool = True) -> History:
        """The history with the entry at `position` pinned, or no longer."""
        assert 0 <= position < len(self.entries), "no entry at this position"
        entry = replace(self.entries[position], kept=on)
        return replace(self, entries=(*self.entries[:position], entry, *self.entries[position + 1 :]))

    def at(self, position: int) -> History:
        """The history with the entry at `position` on screen."""
        assert 0 <= position < len(self.entries), "no entry at this position"
        if position == self.position:
            return self
        return replace(self, position=position, before=self._left, after=(), appended=False)

    def back(self) -> History:
        """With the plan on screen that was there before; the same history where there is none."""
        return self._gone(self.before, self.after, forward=False)

    def forward(self) -> History:
        """With the plan on screen from which the user went back; the same history where there is none."""
        return self._gone(self.after, self.before, forward=True)

    @property
    def can_undo(self) -> bool:
        """Whether another plan was on screen before."""
        return self.back() is not self

    @property
    def can_redo(self) -> bool:
        """Whether the user went back."""
        return self.forward() is not self

    @property
    def _left(self) -> tuple[Plan, ...]:
        """`before` of another plan on screen."""
        return self.before if self.position < 0 else (*self.before, self.entries[self.position].plan)

    def _gone(self, stack: tuple[Plan, ...], other: tuple[Plan, ...], *, forward: bool) -> History:
        """With the last plan of `stack` that is still an entry; the one on screen goes to the `other` stack."""
        places = {id(entry.plan): place for place, entry in enumerate(self.entries)}
        known = tuple(plan for plan in stack if id(plan) in places)
        if not known:
            return self
        here = (*other, self.entries[self.position].plan)
        before, after = (here, known[:-1]) if forward else (known[:-1], here)
        return replace(self, position=places[id(known[-1])], before=before, after=after, appended=False)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans of all entries."""
        return tuple(entry.plan for entry in self.entries)


def _dropped(entries: tuple[Entry, ...]) -> int | None:
    """The index of the entry that has to go: the oldest that is not pinned, or the oldest; None while there is room."""
    if len(entries) <= tuning.HISTORY_ENTRIES:
        return None
    return next((index for index, entry in enumerate(entries[:-1]) if not entry.kept), 0)
