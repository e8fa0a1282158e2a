"""Choices within memory in the cache that were found at a larger B: what they say about a smaller one.

As without a limit (`known_meshes`), the least seconds of the choices that fit rise with 1/B. So what bounds them at
some B bounds them at every smaller one, and the choices, evaluated there, are candidates. Where the gap between the two
stays within the tolerance, nothing is searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from alpa_explore.pricing import cache_entries
from alpa_explore.pricing.frontier import Frontier
from alpa_explore.pricing.mesh_tasks import MemoryTask
from alpa_explore.search.tuning import MOST_KNOWN_COMPOSITIONS
from alpa_explore.store.cache import Store


@dataclass(frozen=True, slots=True)
class KnownWithinMemory:
    """The choices within memory in a cache, by what their problems have in common at every B."""

    store: Store | None

    def find(self, alike: str, memory_bytes: int, inverse_b: float) -> list[Frontier]:
        """What was found for this problem (a key that is the same at every B) with this memory at the nearest larger
        B."""
        if self.store is None:
            return []
        larger = [known for known in self._known(alike, memory_bytes) if known["inverse_b"] <= inverse_b]
        nearest = max((known["inverse_b"] for known in larger), default=0.0)
        entries = [self.store.get(known["entry"]) for known in larger if known["inverse_b"] == nearest]
        return [frontier for entry in entries if entry for frontier in cache_entries.load(entry).values()]

    def add(self, alike: str, task: MemoryTask, entry: str) -> None:
        """Record that the result of `task` is in the cache as `entry`."""
        if self.store is None:
            return
        memory_bytes = task.device.memory_bytes
        others = [known for known in self._known(alike, memory_bytes) if known["entry"] != entry]
        known = [{"entry": entry, "inverse_b": task.inverse_b}, *others[: MOST_KNOWN_COMPOSITIONS - 1]]
        self.store.put(_name(alike, memory_bytes), {"known": known})

    def _known(self, alike: str, memory_bytes: int) -> Sequence[dict[str, Any]]:
        stored = None if self.store is None else self.store.get(_name(alike, memory_bytes))
        return () if stored is None else stored["known"]


def _name(alike: str, memory_bytes: int) -> str:
    return f"{sha256(f'{alike} {memory_bytes}'.encode()).hexdigest()}-within-memory"
