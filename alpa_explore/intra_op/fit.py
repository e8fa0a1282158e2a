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


class _Held:
    """The range beside a number of microbatches."""

    def __init__(self, held: int, inverse_b: float, room: float, constant_bytes: float) -> None:
        self.held, self.inverse_b, self.room = held, inverse_b, room
        self.constants = held * constant_bytes
        self.bound, self.price = -math.inf, 0.0
        """The highest point of L, and where it is."""
        self.asked: set[float] = set()

    def bytes_of(self, choice: Composed) -> float:
        return choice.totals.weight_bytes + self.held * choice.totals.activation_bytes

    def learn(self, price: float, cost: float) -> None:
        """The least cost at a price."""
        self.asked.add(price)
        value = cost - price * (self.room - self.constants)
        if value > self.bound:
            self.bound, self.price = value, price

    def crossing(self, pool: Sequence[Composed]) -> float | None:
        """The price at which the lines of all choices known say that L is highest; None where that was asked."""
        lines = [(seconds(c, self.inverse_b), self.bytes_of(c) - self.room) for c in pool]
        above, below = [x for x in lines if x[1] > 0], [x for x in lines if x[1] <= 0]
        if not above or not below:
            return None
        # The lowest line at any price is a concave hull; its top is where a rising line meets a falling one.
        price, _ = max(
            (
                (p, min(s + p * over for s, over in lines))
                for s1, o1 in above for s2, o2 in below
                if (p := (s2 - s1) / (o1 - o2)) > 0
            ),
            key=lambda found: found[1], default=(0.0, 0.0),
        )  # fmt: skip
        near = any(abs(price - known) <= ROUNDING * price for known in self.asked)
        return None if price <= 0 or near else price


def fit(
    composer: Composer, layers: Range, *, counts: Sequence[int], limit: float, inverse_b: float, gap: float
) -> dict[int, Fit]:
    """For each number of microbatches held a choice within a relative `gap` of the fastest that fits in `limit` bytes,
    workspace included, or the best that was found; nothing where the range cannot be composed."""
    if (pieces := composer.pieces.of(*layers)) is None:
        return {}
    room, constants = limit - composer.least_workspace(*layers), composer.constant_bytes(*layers)
    places = [_Held(held, inverse_b, room, constants) for held in sorted(counts)]
    pool: dict[tuple[tuple[int, ...], ...], Composed] = {}

    def ask(prices: Sequence[tuple[_Held, float]]) -> bool:
        asked = [Price(inverse_b, price, place.held) for place, price in prices]
        for (place, price), found in zip(prices, composer.solve([layers], asked), strict=True):
            best = found.get(layers)
            if best is None:
                return False
            pool.setdefault(best.pieces, best)
            place.learn(price, best.cost)
        return True

    middle = places[len(places) // 2]
    if not ask([(middle, 0.0)]):
        return {}
    worth = max(seconds(next(iter(pool.values())), inverse_b), 1e-6) / limit
    ask([(middle, worth * times) for times in SPREAD])

    def known() -> dict[_Held, Fit]:
        found = {}
        bound = 0.0
        for place in places:
            # What fits beside more microbatches fits beside fewer.
            bound = max(bound, place.bound)
            fitting = [c for c in pool.values() if place.bytes_of(c) + c.totals.workspace_bytes <= limit]
            best = min(fitting, key=lambda c: seconds(c, inverse_b), default=None)
            found[place] = Fit(best=None if best is None else replace(best, cost=seconds(best, inverse_b)), bound=bound)
        return found

    for _ in range(ROUNDS):
        # What is learnt of a place says much of those beside it: the outermost that are open are asked.
        todo = [
            (place, price) for place, now in known().items()
            if not now.within(gap) and (price := place.crossing(list(pool.values()))) is not None
        ]  # fmt: skip
        if not todo:
            break
        ask(list(dict.fromkeys([todo[0], todo[-1]])))
    missing = [
        (Price(inverse_b, p.price, p.held), now.bound, now.best)
        for p, now in known().items()
        if p.price > 0 and not now.within(gap)
    ]
    if missing and not any(piece.ties for piece in pieces):
        spread = {i * (len(missing) - 1) // max(MOST_MIXED - 1, 1) for i in range(MOST_MIXED)}
        for choice in mix(composer, layers, [missing[i] for i in sorted(spread)], limit):
            pool.setdefault(choice.pieces, choice)
    return {place.held: now for place, now in known().items()}


def seconds(choice: Composed, inverse_b: float) -> float:
    """At 1/B."""
    return choice.totals.microbatch_seconds + choice.totals.iteration_seconds * inverse_b
