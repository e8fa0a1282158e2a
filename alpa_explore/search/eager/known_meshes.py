"""Compositions in the cache that were made at another B or with another memory: what they say about a mesh now.

The seconds of a choice are microbatch + iteration / B, a line over 1/B that no memory changes, so the least seconds of
a problem are concave in 1/B. A composition knows them at several 1/B (`Frontier.optima`); between two of these they lie
on or above the chord. Its choices, evaluated at the new B, are candidates. So a mesh whose problems are known needs to
be composed anew only where a pipeline may want one of its stages, and not where a choice lies on the chord: it is the
fastest at this B.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple

from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.pricing import cache_entries
from alpa_explore.pricing.frontier import Frontier, StageChoice
from alpa_explore.pricing.mesh_tasks import MeshTask
from alpa_explore.pricing.stage_costs import Provenance
from alpa_explore.pricing.tuning import PROVEN, TIE_SECONDS, TOLERANCE
from alpa_explore.search.tuning import MOST_KNOWN_COMPOSITIONS
from alpa_explore.store.cache import Store

_NEAR_FASTEST = frozenset((Provenance.FASTEST, Provenance.EXACT, Provenance.NEAR))
Alike = Mapping[Range, str]
"""For the ranges of a task, keys that are the same at every B and with every memory."""


class KnownMesh(NamedTuple):
    """What another B or memory says about a mesh."""

    frontiers: dict[Range, Frontier]
    composed: bool
    """Composed with the same memory: then only the fastest choices at the requested B are missing, and not even those
    of a frontier that is proven."""


@dataclass(frozen=True, slots=True)
class KnownMeshes:
    """The compositions in a cache, by what they have in common at every B and with every memory."""

    store: Store | None

    def find(self, task: MeshTask, alike: Alike, *, bounded: bool = False) -> KnownMesh | None:
        """For every range of the task the choices that the composition with the nearest B found, and a lower bound at
        the task's B (`Frontier.bound_seconds`); None where no composition has all of them. With `bounded`
        the fastest choices at the nearest B serve where nothing was composed."""
        if self.store is None:
            return None

        def distance(known: Mapping[str, Any]) -> tuple[bool, float]:
            return known["bounded"], abs(math.log(known["inverse_b"] / task.inverse_b))

        for known in sorted((k for k in self._known(alike) if bounded or not k["bounded"]), key=distance):
            if known["least_held"] != task.least_held or (entry := self.store.get(known["entry"])) is None:
                continue
            frontiers = cache_entries.load(entry)
            by_key = {key: frontiers.get((first, last)) for first, last, key in known["ranges"]}
            same = {r: f for r, key in alike.items() if (f := by_key.get(key))}
            found = {r: at for r, f in same.items() if (at := at_inverse_b(f, task.inverse_b)) is not None}
            if len(found) == len(alike):
                composed = not known["bounded"] and known["memory_bytes"] == task.device.memory_bytes
                attained = {r: where_attained(f, task.inverse_b) for r, f in same.items()} if composed else {}
                return KnownMesh(found | {r: f for r, f in attained.items() if f is not None}, composed)
        return None

    def add(self, task: MeshTask, alike: Alike, entry: str, *, bounded: bool) -> None:
        """Record that the result of `task` is in the cache as `entry`; `bounded` where it has the fastest choices
        only."""
        if self.store is None:
            return
        new = {
            "entry": entry,
            "bounded": bounded,
            "inverse_b": task.inverse_b,
            "memory_bytes": task.device.memory_bytes,
            "least_held": task.least_held,
            "ranges": [(*r, key) for r, key in alike.items()],
        }
        others = [known for known in self._known(alike) if known["entry"] != entry]
        self.store.put(_name(alike.values()), {"known": [new, *others[: MOST_KNOWN_COMPOSITIONS - 1]]})

    def _known(self, alike: Alike) -> list[dict[str, Any]]:
        assert self.store is not None, "the callers have looked"
        stored = self.store.get(_name(alike.values()))
        return [] if stored is None else stored["known"]


def at_inverse_b(frontier: Frontier, inverse_b: float) -> Frontier | None:
    """A frontier that was found at another 1/B, with a lower bound at this one on the seconds of every choice that
    fits. None where no bound is known.

    A choice that is the fastest of its composition but for ties of memory may be slower than another one by the price
    of a device's memory, TIE_SECONDS.
    """
    if not frontier.points:
        return replace(frontier, bound_seconds=math.inf)
    least = chord(frontier.optima, inverse_b)
    if least is None:
        return None
    bound = least * (1 - PROVEN) - TIE_SECONDS
    fastest = min(
        (p.totals.device_latency_at(inverse_b) for p in frontier.points if p.provenance in _NEAR_FASTEST),
        default=math.inf,
    )
    near = fastest * (1 - 2 * TOLERANCE) <= bound
    return replace(
        frontier,
        points=tuple(_at_other_b(point, near=near) for point in frontier.points),
        bound_seconds=bound,
        proven=False,
        bounds_within=(),
    )


def where_attained(frontier: Frontier, inverse_b: float) -> Frontier | None:
    """The frontier of a range that was composed at another 1/B, where one of its choices costs no more than the chord
    at this 1/B: that choice is the fastest here, but for rounding and ties of memory, so the frontier is proven as if
    it had been composed at this 1/B. None where every choice costs more."""
    if not frontier.points:
        return replace(frontier, bound_seconds=math.inf, proven=True)
    fastest = min(frontier.points, key=lambda p: p.totals.device_latency_at(inverse_b))
    seconds, least = fastest.totals.device_latency_at(inverse_b), chord(frontier.optima, inverse_b)
    if least is None or seconds > least * (1 + PROVEN) + TIE_SECONDS:
        return None
    return replace(
        frontier,
        points=tuple(
            replace(p, provenance=Provenance.FASTEST) if p is fastest else _at_other_b(p, near=True)
            for p in frontier.points
        ),
        bound_seconds=min(p.totals.latency_at(inverse_b) for p in frontier.points),
        proven=True,
        optima=tuple(sorted((dict(frontier.optima) | {inverse_b: seconds}).items())),
        bounds_within=(),
    )


def chord(optima: tuple[tuple[float, float], ...], inverse_b: float) -> float | None:
    """A concave function that rises with 1/B, known at some points in rising order, is at least so large at
    `inverse_b`; None below the points."""
    if optima and inverse_b > optima[-1][0]:
        return optima[-1][1]
    for (low, at_low), (high, at_high) in pairwise(optima):
        if low <= inverse_b <= high:
            share = (inverse_b - low) / (high - low)
            return at_low * (1 - share) + at_high * share
    return None


def _at_other_b(point: StageChoice, *, near: bool) -> StageChoice:
    """A choice without the proofs of the B at which it was found."""
    if point.provenance in _NEAR_FASTEST:
        return replace(point, provenance=Provenance.NEAR if near else Provenance.CONVEX)
    return point


def _name(keys: Collection[str]) -> str:
    return f"{sha256(repr(sorted(keys)).encode()).hexdigest()}-compositions"
