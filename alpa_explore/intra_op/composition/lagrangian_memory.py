"""The fastest choices of a range that fit in a device, with a bound, by prices for memory over composed pieces.

With a price λ for a byte, and *room* for weights and held activations beside the least workspace,

    L(λ) = min_s ( seconds(s) + λ · bytes(s) ) − λ · room   ≤   seconds of every choice that fits

and composition finds the minimum exactly. L is concave; its highest point lies where the lines of two choices cross,
one above the room and one below, and is found by asking at the crossing until no line is lower there.

What is asked beside h microbatches bounds what is held beside more of them too: bytes grow by no less than the least
activations for each. And ranges with equal blocks have their highest point at nearly the same price: prices `near` it
are asked of all of them from the same tables.

At that price equal blocks change sides together, so what composition finds at prices alone is too fast to fit or leaves
room. A choice that has some blocks on either side is put together from what blocks choose at prices nearby (`mix`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.block_tables import PieceTables
from alpa_explore.intra_op.composition.compose import Composed, Composer
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.composition.label_setting import mix

SPREAD = (1e-2, 3e-2, 1e-1, 1.0, 1e4)
"""First prices of a whole device of memory, in times of the fastest choice."""
FARTHEST = (1e-6, 1e-1, 1.0, 1e1, 1e4)
"""Those that are asked where choices that fit, or faster ones, are still to be found."""
ROUNDS = 12
"""Of prices, each at the crossings that the last one left."""
MOST_MIXED = 3
"""Numbers of microbatches held for which choices are put together; what fits beside more serves those between."""
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What is known of a range beside so many microbatches."""

    best: Composed | None
    """The fastest that fits of what was found."""
    bound: float
    """Seconds that no choice that fits is below."""
    price: float
    """Where that bound was found."""

    def within(self, gap: float) -> bool:
        """True when the best is as near the fastest as this."""
        return self.best is not None and self.best.cost <= self.bound * (1 + gap)


class _Place:
    """What the range may hold beside so many microbatches, and what is known of L."""

    def __init__(self, held: int, inverse_b: float, room: float, constants: float) -> None:
        self.held, self.inverse_b, self.room, self.constants = held, inverse_b, room, constants
        self.bound, self.price = -math.inf, 0.0
        """The highest point of L that was found, and where it is."""
        self.asked: set[float] = set()
        self.known: dict[float, float] = {}
        """L at the prices that were asked, or what it is not below."""

    def bytes_of(self, choice: Composed) -> float:
        return choice.totals.weight_bytes + self.held * choice.totals.activation_bytes

    def over(self, choice: Composed) -> float:
        """Bytes above the room of what prices count."""
        return self.bytes_of(choice) - self.room - self.held * self.constants

    def learn(self, price: Price, cost: float, least_activation: float) -> None:
        """The least cost at a price."""
        more, worth = self.held - price.microbatches_held, price.memory_price
        if more < 0:
            return
        if more == 0:
            self.asked.add(worth)
        value = cost + worth * (more * least_activation - self.room)
        self.known[worth] = max(value, self.known.get(worth, value))
        if value > self.bound:
            self.bound, self.price = value, worth

    def crossing(self, pool: Sequence[Composed]) -> float | None:
        """The price at which the lines of all choices known say that L is highest; None where that was asked."""
        lines = [(seconds(c, self.inverse_b), self.over(c)) for c in pool]
        above, below = [x for x in lines if x[1] > 0], [x for x in lines if x[1] <= 0]
        # The lowest line at any price is a concave hull; its top is where a rising line meets a falling one.
        tops = (
            (min(s + price * over for s, over in lines), price)
            for s1, o1 in above
            for s2, o2 in below
            if (price := (s2 - s1) / (o1 - o2)) > 0
        )
        _, price = max(tops, default=(0.0, 0.0))
        known = price <= 0 or any(abs(price - asked) <= ROUNDING * price for asked in self.asked)
        return None if known else price


class _Search:
    """One range at many prices; remembers every distinct choice."""

    def __init__(
        self, composer: Composer, layers: Range, counts: Sequence[int], limit: float, inverse_b: float
    ) -> None:
        self.composer, self.layers, self.limit, self.inverse_b = composer, layers, limit, inverse_b
        # A bound allows for constants that are divided; composition replicates them, and prices do not count them.
        room, least = limit - composer.least_workspace(*layers), composer.least_constant_bytes(*layers)
        constants = composer.constant_bytes(*layers)
        self.least_activation = sum(p.least_activation_bytes for p in composer.pieces.of(*layers) or ())
        self.places = [_Place(held, inverse_b, room - held * least, constants) for held in sorted(counts)]
        self.pool: dict[tuple[tuple[int, ...], ...], Composed] = {}

    def ask(self, prices: Sequence[Price], tables: PieceTables | None = None) -> bool:
        """True when there is a choice at all, and it can be composed."""
        for price, found in zip(prices, self.composer.solve([self.layers], prices, tables=tables), strict=True):
            best = found.get(self.layers)
            if best is None:
                return False
            self.pool.setdefault(best.pieces, best)
            for place in self.places:
                place.learn(price, best.cost, self.least_activation)
        return True

    def price(self, place: _Place, worth: float) -> Price:
        """Of a byte, beside as many microbatches as at a place."""
        return Price(self.inverse_b, worth, place.held)

    def known(self) -> dict[_Place, Fit]:
        """The best choices and bounds until now."""
        found = {}
        bound = 0.0
        for place in self.places:
            # What fits beside more microbatches fits beside fewer.
            bound = max(bound, place.bound)
            fitting = [c for c in self.pool.values() if place.bytes_of(c) + c.totals.workspace_bytes <= self.limit]
            best = min(fitting, key=self._seconds, default=None)
            best = None if best is None else replace(best, cost=self._seconds(best))
            found[place] = Fit(best=best, bound=bound, price=place.price)
        return found

    def open_places(self, gap: float) -> list[tuple[_Place, Fit]]:
        """Those whose best choice may be more than `gap` from the fastest."""
        return [(place, fit) for place, fit in self.known().items() if not fit.within(gap)]

    def spread(self, gap: float) -> None:
        """Ask at far prices where all that is known of an open place lies on one side of its room."""
        pool = self.pool.values()
        for place, _ in self.open_places(gap):
            if len({place.over(c) > 0 for c in pool}) < 2:
                worth = max(min(map(self._seconds, pool)), 1e-6) / self.limit
                self.ask([self.price(place, worth * times) for times in (0.0, *FARTHEST)])
                return

    def raise_bounds(self, gap: float) -> None:
        """Ask at crossings until L is known where it is highest."""
        for _ in range(ROUNDS):
            pool = list(self.pool.values())
            todo = [(place, price) for place, _ in self.open_places(gap) if (price := place.crossing(pool)) is not None]
            if not todo:
                return
            # What is learnt of a place says much of those beside it: the outermost are asked.
            self.ask([self.price(*one) for one in dict.fromkeys([todo[0], todo[-1]])])

    def mix(self, gap: float, tables: PieceTables | None = None) -> None:
        """Put choices together where those of single prices are not near enough; of what blocks choose in `tables`."""
        missing = []
        for place, fit in self.open_places(gap):
            worths = [place.price] if tables is None else {p.memory_price for p in tables.prices} & place.known.keys()
            worth = max((w for w in worths if w > 0), key=lambda w: place.known[w], default=0.0)
            if worth > 0:
                missing.append((self.price(place, worth), place.known[worth], fit.best))
        if missing:
            some = sorted({i * (len(missing) - 1) // max(MOST_MIXED - 1, 1) for i in range(MOST_MIXED)})
            for choice in mix(self.composer, self.layers, [missing[i] for i in some], self.limit, tables):
                self.pool.setdefault(choice.pieces, choice)

    def _seconds(self, choice: Composed) -> float:
        return seconds(choice, self.inverse_b)


def fit(
    composer: Composer,
    layers: Range,
    *,
    counts: Sequence[int],
    limit: float,
    inverse_b: float,
    gap: float,
    near: PieceTables | None = None,
) -> dict[int, Fit]:
    """For each number of microbatches held a choice within a relative `gap` of the fastest that fits in `limit` bytes,
    workspace included, or the best that was found; nothing where the range cannot be composed.

    `near`: tables at prices where the bounds may be highest, of which other ranges are asked too.
    """
    if (pieces := composer.pieces.of(*layers)) is None:
        return {}
    search, tied = _Search(composer, layers, counts, limit, inverse_b), any(piece.ties for piece in pieces)
    if near is None:
        if not search.ask([search.price(search.places[0], 0.0)]):
            return {}
        worth = max(seconds(next(iter(search.pool.values())), inverse_b), 1e-6) / limit
        near = composer.tables([search.price(search.places[0], worth * times) for times in SPREAD])
    if not search.ask(near.prices, near):
        return {}
    search.spread(gap)
    search.raise_bounds(gap)
    for tables in () if tied else (near, None):
        search.mix(gap, tables)
    return {place.held: found for place, found in search.known().items()}


def seconds(choice: Composed, inverse_b: float) -> float:
    """At 1/B."""
    return choice.totals.microbatch_seconds + choice.totals.iteration_seconds * inverse_b
