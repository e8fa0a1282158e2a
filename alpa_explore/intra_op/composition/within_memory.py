"""The fastest choices of a layer range that fit on a device, with dual bounds, by prices of memory (Lagrange
multipliers).

Let λ be the price of a byte, and *room* the memory that the least workspace leaves for weights and held activations.
The dual function

    L(λ) = min_s ( seconds(s) + λ · bytes(s) ) − λ · room   ≤   seconds of every choice s that fits

is computed exactly by composition; seconds are as solvers add them up (`stage.stage_totals`). L is concave. Its maximum
lies where the lines of two choices cross, one that exceeds the room and one that fits; it is found by solving at the
crossing of the lines so far until no line is lower there.

A solve for h microbatches held also gives a bound for more microbatches: each of them adds at least the least
activation bytes.

At the best price λ equal blocks switch strategies together, so a choice that is optimal at a single price is either too
large or leaves room. Choices in between are *mixtures*: the blocks up to some separator have a price just above λ, and
those behind it one just below. Each is optimal at λ but for that difference, and so

    seconds(s) ≈ L(λ) + λ · (room − bytes(s))

is above the bound by what one block at most leaves of the room, and by what the workspace takes above the least one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from alpa_explore.intra_op.composition import tuning
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.compose import ComposedChoice, Composer, ConstantBytes
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.numerics.lower_envelope import highest_crossing


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimitedChoice:
    """The result for a range with some number of microbatches held."""

    best: ComposedChoice | None
    """The fastest choice found that fits; its cost are its seconds on the device."""
    bound: float
    """Lower bound on the seconds on the device of every choice that fits."""

    def paced_bound(self, inverse_b: float) -> float:
        """The bound at the pace of the slower of host and device, as latencies are: the host is taken to cost as much
        as with the best choice. Device seconds are what is optimised (`stage.stage_totals`)."""
        return self.bound if self.best is None else self.bound + self.best.totals.latency_at(inverse_b) - self.best.cost

    def within(self, gap: float) -> bool:
        """True when the best choice is within this relative gap of the bound."""
        return self.best is not None and self.best.cost <= self.bound * (1 + gap)


class _DualFunction:
    """The dual function L for one number of microbatches held, as far as it has been evaluated."""

    def __init__(self, held: int, inverse_b: float, room: float, constants: ConstantBytes) -> None:
        self.held, self.inverse_b, self.room, self.constants = held, inverse_b, room, constants
        self.bound = -math.inf
        """The highest value of L so far, or of a lower bound on it from a solve for fewer microbatches held."""
        self.solved: set[float] = set()
        """Prices solved for exactly this number of microbatches held."""

    def excess(self, choice: ComposedChoice) -> float:
        """Bytes above the room, without the constants, which prices do not count."""
        return choice.totals.held_bytes(self.held) - self.room - self.constants.held(self.held)

    def learn(self, price: Price, cost: float, least_activation: float) -> None:
        """Take in the least cost at a price."""
        more, memory_price = self.held - price.microbatches_held, price.memory_price
        if more < 0:
            return
        if more == 0:
            self.solved.add(memory_price)
        self.bound = max(self.bound, cost + memory_price * (more * least_activation - self.room))

    def next_price(self, choices: Sequence[ComposedChoice]) -> float | None:
        """The price at which the lines of all known choices say that L is highest; None where that was solved."""
        price = highest_crossing([(c.totals.device_latency_at(self.inverse_b), self.excess(c)) for c in choices])
        if price is None or any(abs(price - solved) <= tuning.EQUAL_PRICES * price for solved in self.solved):
            return None
        return price


class _LagrangianSearch:
    """One range at many prices; remembers every distinct choice."""

    def __init__(
        self, composer: Composer, layers: Range, counts: Sequence[int], limit: float, inverse_b: float
    ) -> None:
        self.composer, self.layers, self.limit, self.inverse_b = composer, layers, limit, inverse_b
        # A bound must allow for sharded constants; composition replicates them, and prices do not count them.
        room, least = limit - composer.least_workspace(*layers), composer.least_constant_bytes(*layers)
        constants = composer.constant_bytes(*layers)
        self.least_activation = sum(b.least_activation_bytes for b in composer.cutter.of_range(*layers) or ())
        self.duals = [_DualFunction(held, inverse_b, room - least.held(held), constants) for held in sorted(counts)]
        self.choices: dict[tuple[tuple[int, ...], ...], ComposedChoice] = {}

    def solve(self, prices: Sequence[Price]) -> bool:
        """Solve at these prices; False when the range has no choice or cannot be composed."""
        for price, solutions in zip(prices, self.composer.solve([self.layers], prices), strict=True):
            best = solutions.get(self.layers)
            if best is None:
                return False
            self.choices.setdefault(best.block_choices, best)
            for dual in self.duals:
                dual.learn(price, best.cost, self.least_activation)
        return True

    def price(self, dual: _DualFunction, memory_price: float) -> Price:
        """A price of a byte, for the number of microbatches held of a dual function."""
        return Price(self.inverse_b, memory_price, dual.held)

    def results(self) -> dict[_DualFunction, MemoryLimitedChoice]:
        """The best choices and bounds so far."""
        results = {}
        bound = 0.0
        for dual in self.duals:
            # A choice that fits with more microbatches held also fits with fewer.
            bound = max(bound, dual.bound)
            fitting = [c for c in self.choices.values() if c.totals.peak_bytes(dual.held) <= self.limit]
            best = min(fitting, key=self._seconds, default=None)
            best = None if best is None else replace(best, cost=self._seconds(best))
            results[dual] = MemoryLimitedChoice(best=best, bound=bound)
        return results

    def open_duals(self, gap: float) -> list[tuple[_DualFunction, MemoryLimitedChoice]]:
        """Those whose best choice may be more than `gap` from the fastest."""
        return [(dual, result) for dual, result in self.results().items() if not result.within(gap)]

    def bracket_room(self, gap: float) -> None:
        """Solve at distant prices where all known choices lie on one side of the room of an open dual function."""
        choices = self.choices.values()
        for dual, _ in self.open_duals(gap):
            if len({dual.excess(c) > 0 for c in choices}) < 2:
                unit = max(min(map(self._seconds, choices)), 1e-6) / self.limit
                self.solve([self.price(dual, unit * times) for times in (0.0, *tuning.OUTER_PRICES)])
                return

    def raise_bounds(self, gap: float) -> None:
        """Solve at crossings until L is known where it is highest."""
        for _ in range(tuning.DUAL_ROUNDS):
            choices = list(self.choices.values())
            crossings = [
                (dual, price) for dual, _ in self.open_duals(gap) if (price := dual.next_price(choices)) is not None
            ]
            if not crossings:
                return
            # A solve for one dual function helps those next to it, so only the outermost two are solved.
            self.solve([self.price(dual, price) for dual, price in dict.fromkeys([crossings[0], crossings[-1]])])

    def mix(self, gap: float) -> None:
        """Mixtures for the dual functions that are still open, of most microbatches first: what fits with these fits
        with fewer. Their price is the best one by the lines of all known choices: with the least workspace, as the
        bound has it, then with the workspace of each."""
        for dual in reversed(self.duals):
            for excess in dual.excess, partial(self._overflow, dual.held):
                if all(dual is not other for other, _ in self.open_duals(gap)):
                    break
                price = highest_crossing([(self._seconds(c), excess(c)) for c in self.choices.values()]) or 0.0
                low, high = (self.price(dual, price * (1 + sign * tuning.MIXED_PRICES)) for sign in (-1, 1))
                for choice in self.composer.mixtures(self.layers, low, high) if price > 0 else ():
                    self.choices.setdefault(choice.block_choices, choice)

    def _overflow(self, held: int, choice: ComposedChoice) -> float:
        return choice.totals.peak_bytes(held) - self.limit

    def _seconds(self, choice: ComposedChoice) -> float:
        return choice.totals.device_latency_at(self.inverse_b)


def fastest_within_memory(
    composer: Composer, layers: Range, *, counts: Sequence[int], limit: float, inverse_b: float, gap: float
) -> dict[int, MemoryLimitedChoice]:
    """For each number of microbatches held in `counts` a lower bound on the seconds of every choice that fits in
    `limit` bytes, workspace included, and the fastest choice found that fits; the search for it ends at a relative
    `gap`. Empty where the range cannot be composed."""
    if composer.cutter.of_range(*layers) is None:
        return {}
    search = _LagrangianSearch(composer, layers, counts, limit, inverse_b)
    if not search.solve([search.price(search.duals[0], 0.0)]):
        return {}
    unit = max(next(iter(search.choices.values())).totals.device_latency_at(inverse_b), 1e-6) / limit
    if not search.solve([search.price(search.duals[0], unit * times) for times in tuning.FIRST_PRICES]):
        return {}
    search.bracket_room(gap)
    search.raise_bounds(gap)
    search.mix(gap)
    return {dual.held: result for dual, result in search.results().items()}
