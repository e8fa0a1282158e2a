"""The fastest choices of a range that fit in a device, with a bound, by prices for memory over composed pieces.

With a price λ for a byte, and *room* for weights and held activations beside the least workspace,

    L(λ) = min_s ( seconds(s) + λ · bytes(s) ) − λ · room   ≤   seconds of every choice that fits

and composition finds the minimum exactly. L is concave; its highest point lies where the lines of two choices cross,
one above the room and one below, and is found by asking at the crossing until no line is lower there.

At that price equal blocks change sides together, so what composition finds at prices alone is too fast to fit or leaves
room. A choice that has some blocks on either side is put together from what blocks choose at prices nearby (`mix`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from alpa_explore.intra_op.compose import Composed, Composer
from alpa_explore.intra_op.mix import mix
from alpa_explore.intra_op.pieces import Price, Range

SPREAD = (1e-6, 1e-1, 1.0, 1e1, 1e4)
"""First prices of a whole device of memory, in times of the fastest choice."""
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

    def bytes_of(self, choice: Composed) -> float:
        return choice.totals.weight_bytes + self.held * choice.totals.activation_bytes

    def learn(self, price: float, cost: float) -> None:
        """The least cost at a price."""
        self.asked.add(price)
        value = cost - price * self.room
        if value > self.bound:
            self.bound, self.price = value, price

    def crossing(self, pool: Sequence[Composed]) -> float | None:
        """The price at which the lines of all choices known say that L is highest; None where that was asked."""
        priced = self.room + self.held * self.constants
        lines = [(seconds(c, self.inverse_b), self.bytes_of(c) - priced) for c in pool]
        above, below = [x for x in lines if x[1] > 0], [x for x in lines if x[1] <= 0]
        # The lowest line at any price is a concave hull; its top is where a rising line meets a falling one.
        tops = (
            (min(s + price * over for s, over in lines), price)
            for s1, o1 in above for s2, o2 in below
            if (price := (s2 - s1) / (o1 - o2)) > 0
        )  # fmt: skip
        _, price = max(tops, default=(0.0, 0.0))
        known = price <= 0 or any(abs(price - asked) <= ROUNDING * price for asked in self.asked)
        return None if known else price


class _Search:
    """One range at many prices; remembers every distinct choice."""

    def __init__(
        self, composer: Composer, layers: Range, counts: Sequence[int], limit: float, inverse_b: float
    ) -> None:  # fmt: skip
        self.composer, self.layers, self.limit, self.inverse_b = composer, layers, limit, inverse_b
        # A bound allows for constants that are divided; composition replicates them, and prices do not count them.
        room, least = limit - composer.least_workspace(*layers), composer.least_constant_bytes(*layers)
        constants = composer.constant_bytes(*layers)
        self.places = [_Place(held, inverse_b, room - held * least, constants) for held in sorted(counts)]
        self.pool: dict[tuple[tuple[int, ...], ...], Composed] = {}

    def ask(self, prices: Sequence[tuple[_Place, float]]) -> bool:
        """True when there is a choice at all, and it can be composed."""
        asked = [Price(self.inverse_b, price, place.held) for place, price in prices]
        for (place, price), found in zip(prices, self.composer.solve([self.layers], asked), strict=True):
            best = found.get(self.layers)
            if best is None:
                return False
            self.pool.setdefault(best.pieces, best)
            place.learn(price, best.cost)
        return True

    def known(self) -> dict[_Place, Fit]:
        """The best choices and bounds until now."""
        found = {}
        bound = 0.0
        for place in self.places:
            # What fits beside more microbatches fits beside fewer.
            bound = max(bound, place.bound)
            fitting = [c for c in self.pool.values() if place.bytes_of(c) + c.totals.workspace_bytes <= self.limit]
            best = min(fitting, key=self._seconds, default=None)
            found[place] = Fit(best=None if best is None else replace(best, cost=self._seconds(best)), bound=bound)
        return found

    def open_places(self, gap: float) -> list[tuple[_Place, Fit]]:
        """Those whose best choice may be more than `gap` from the fastest."""
        return [(place, fit) for place, fit in self.known().items() if not fit.within(gap)]

    def raise_bounds(self, gap: float) -> None:
        """Ask at crossings until L is known where it is highest."""
        for _ in range(ROUNDS):
            pool = list(self.pool.values())
            todo = [
                (place, price) for place, _ in self.open_places(gap) if (price := place.crossing(pool)) is not None
            ]  # fmt: skip
            if not todo:
                return
            # What is learnt of a place says much of those beside it: the outermost are asked.
            self.ask(list(dict.fromkeys([todo[0], todo[-1]])))

    def mix(self, gap: float) -> None:
        """Put choices together where those of single prices are not near enough."""
        missing = [
            (Price(self.inverse_b, place.price, place.held), fit.bound, fit.best)
            for place, fit in self.open_places(gap) if place.price > 0
        ]  # fmt: skip
        if missing:
            some = sorted({i * (len(missing) - 1) // max(MOST_MIXED - 1, 1) for i in range(MOST_MIXED)})
            for choice in mix(self.composer, self.layers, [missing[i] for i in some], self.limit):
                self.pool.setdefault(choice.pieces, choice)

    def _seconds(self, choice: Composed) -> float:
        return seconds(choice, self.inverse_b)


def fit(
    composer: Composer, layers: Range, *, counts: Sequence[int], limit: float, inverse_b: float, gap: float
) -> dict[int, Fit]:
    """For each number of microbatches held a choice within a relative `gap` of the fastest that fits in `limit` bytes,
    workspace included, or the best that was found; nothing where the range cannot be composed."""
    if (pieces := composer.pieces.of(*layers)) is None:
        return {}
    search = _Search(composer, layers, counts, limit, inverse_b)
    middle = search.places[len(counts) // 2]
    if not search.ask([(middle, 0.0)]):
        return {}
    worth = max(seconds(next(iter(search.pool.values())), inverse_b), 1e-6) / limit
    search.ask([(middle, worth * times) for times in SPREAD])
    search.raise_bounds(gap)
    if not any(piece.ties for piece in pieces):
        search.mix(gap)
    return {place.held: found for place, found in search.known().items()}


def seconds(choice: Composed, inverse_b: float) -> float:
    """At 1/B."""
    return choice.totals.microbatch_seconds + choice.totals.iteration_seconds * inverse_b
