"""Label setting: choices of a range that fit in memory, combined from what its blocks choose at several prices.

At a price λ the slack of a pair of states (left, right) of a block is the cost of the cheapest choice with that pair
minus the least cost of all choices. Pairs with more slack than a better choice could save are in none. For the other
pairs, the choices of the block at prices around λ are its *options*, each with (seconds, bytes). *Labels*, sums of
options from the left end to a separator, are kept where no other label is better in both figures, and where they may
still become better than the best known choice:

    seconds + λ · (bytes − room) + least cost of the remaining blocks(state)   <   the best that fits
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from alpa_explore.intra_op.composition import tuning
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.block_tables import BlockChoice, BlockTable, BlockTables
from alpa_explore.intra_op.composition.compose import ComposedChoice, Composer
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.numerics.arrays import Flags, Floats, Ints


class Request(NamedTuple):
    """A number of microbatches held for which a better choice is sought."""

    price: Price
    """The price at which the dual bound is highest."""
    bound: float
    best: ComposedChoice | None
    """The best known choice that fits."""

    def best_cost(self) -> float:
        """Seconds of the best known choice; inf where there is none."""
        return np.inf if self.best is None else self.best.cost


@dataclass(frozen=True, slots=True)
class _Options:
    """Choices of a block, [options] each: left and right state, price at which it was chosen, totals."""

    left: Ints
    right: Ints
    price: Ints
    totals: Floats
    """[options, 7], as `BlockSubproblem.totals`."""


class _Labels(NamedTuple):
    """Labels behind one block, [labels] each."""

    state: Ints
    seconds: Floats
    bytes: Floats
    previous: Ints
    """The label behind the block before."""
    option: Ints
    """The option of this block."""

    def at(self, chosen: Ints) -> _Labels:
        """The labels with these numbers (or flags)."""
        return _Labels(
            self.state[chosen], self.seconds[chosen], self.bytes[chosen], self.previous[chosen], self.option[chosen]
        )


def combine_block_choices(
    composer: Composer,
    layers: Range,
    requests: Sequence[Request],
    limit: float,
    tables: BlockTables | None = None,
) -> Iterator[ComposedChoice]:
    """For each request a choice that fits in `limit` bytes and is better than the best known one, where one is found.

    `tables`, where given, have a price for each request with the same price of a byte, for as many microbatches held or
    fewer, and other prices around it; else tables are made.
    """
    if tables is None or not {r.price.memory_price for r in requests} <= {p.memory_price for p in tables.prices}:
        around = [
            r.price._replace(memory_price=r.price.memory_price * times)
            for r in requests
            for times in tuning.OPTION_PRICES
        ]
        prices = dict.fromkeys([*(r.price for r in requests), *around])
        tables = BlockTables(composer.cutter, list(prices), np.inf)
    blocks = tables.of_blocks(composer.cutter.of_range(*layers))
    if blocks is None:
        return
    index = {p.memory_price: i for i, p in reversed(list(enumerate(tables.prices)))}
    # With fewer microbatches held the remaining blocks cost no more, so that is a bound as well.
    potentials = {r.price: _Potentials(blocks, index[r.price.memory_price]) for r in requests}
    slack = {r.price: min(tuning.MOST_SLACK * abs(r.bound), r.best_cost() - r.bound) for r in requests}
    pairs: dict[BlockTable, Flags] = {}
    for price, potential in potentials.items():
        for i, table in enumerate(blocks):
            near = _pairs_within(potential.slack(i), slack[price])
            pairs[table] = pairs[table] | near if table in pairs else near
    options = {table: _options(table, near) for table, near in pairs.items()}
    least_workspace = composer.least_workspace(*layers)
    constants = composer.constant_bytes(*layers)
    for request in requests:
        price = request.price
        search = _LabelSearch(
            price=price,
            room=limit - least_workspace - price.microbatches_held * constants,
            best=request.best_cost(),
            most=request.bound + slack[price],
        )
        search.run([options[table] for table in blocks], potentials[price])
        for cost, chosen in search.ends():
            choice = composer.joined(layers, cost, _block_choices(blocks, options, chosen))
            if choice.totals.peak_bytes(price.microbatches_held) <= limit:
                yield choice
                break


class _Potentials:
    """The least cost from both ends of a range to every state of its separators, at one price."""

    def __init__(self, blocks: Sequence[BlockTable], price: int) -> None:
        self.tables = [table.costs[price] for table in blocks]
        self.before: list[Floats] = [np.zeros(1)]
        for table in self.tables:
            self.before.append((self.before[-1][:, None] + table).min(axis=0))
        behind: list[Floats] = [np.zeros(1)]
        for table in reversed(self.tables):
            behind.append((table + behind[-1][None, :]).min(axis=1))
        self.behind = behind[::-1]

    def slack(self, i: int) -> Floats:
        """Of every pair of states of the i-th block."""
        through = self.before[i][:, None] + self.tables[i] + self.behind[i + 1][None, :]
        return np.asarray(through - self.behind[0].min())


def _pairs_within(slack: Floats, most: float) -> Flags:
    """The pairs of states with a slack up to `most`; where they are too many, those of least slack."""
    if slack.size > tuning.MOST_PAIRS:
        most = min(most, float(np.partition(slack, tuning.MOST_PAIRS - 1, axis=None)[tuning.MOST_PAIRS - 1]))
    return np.asarray(slack <= most)


def _options(table: BlockTable, near: Flags) -> _Options:
    """What a block chooses at every price for these pairs of states; of equal choices the first."""
    left, right = np.nonzero(near)
    prices = len(table.costs)
    left, right = np.tile(left, prices), np.tile(right, prices)
    price = np.repeat(np.arange(prices), near.sum())
    totals = table.totals(price, left, right)
    rows = np.column_stack([left, right, totals])
    _, first = np.unique(rows, axis=0, return_index=True)
    return _Options(left[first], right[first], price[first], totals[first])


@dataclass(slots=True, kw_only=True, eq=False)
class _LabelSearch:
    """The labels along a range for one request."""

    price: Price
    room: float
    best: float
    """Seconds of the best known choice."""
    most: float
    """Seconds up to which labels are followed."""
    labels: list[_Labels] = field(default_factory=list)
    """Behind every block."""

    def run(self, options: Sequence[_Options], potentials: _Potentials) -> None:
        """Extend the labels block by block."""
        start = np.zeros(1, np.int64)
        self.labels = [_Labels(start, np.zeros(1), np.zeros(1), start, start)]
        memory_price = self.price.memory_price
        for i, o in enumerate(options):
            option_seconds = o.totals[:, 0] + self.price.inverse_b * o.totals[:, 1]
            option_bytes = o.totals[:, 2] + self.price.microbatches_held * o.totals[:, 3]
            labels = self.labels[-1]
            bound, behind = min(self.best, self.most), potentials.behind[i + 1]
            reaching = labels.seconds + memory_price * (labels.bytes - self.room)
            remaining = option_seconds + memory_price * option_bytes + behind[o.right]
            previous, option = _pairs_below(labels.state, reaching, o.left, remaining, bound)
            seconds = labels.seconds[previous] + option_seconds[option]
            held_bytes = labels.bytes[previous] + option_bytes[option]
            state = o.right[option]
            reachable = seconds + memory_price * (held_bytes - self.room) + behind[state]
            kept = reachable < bound
            extended = _Labels(state[kept], seconds[kept], held_bytes[kept], previous[kept], option[kept])
            self.labels.append(_undominated(extended))

    def ends(self) -> Iterator[tuple[float, list[int]]]:
        """(seconds, option of every block) of a few of the fastest labels that may fit."""
        last = self.labels[-1]
        order = [i for i in np.argsort(last.seconds) if last.bytes[i] <= self.room and last.seconds[i] < self.best]
        # If the first few do not fit, it is their workspace that is too large: then larger steps.
        tries = tuning.MOST_ENDS_TRIED
        step = max(1, len(order) // tries)
        for i in [*order[: tries // 2], *order[tries // 2 :: step]]:
            chosen, label = [], int(i)
            for labels in reversed(self.labels[1:]):
                chosen.append(int(labels.option[label]))
                label = int(labels.previous[label])
            yield float(last.seconds[i]), chosen[::-1]


def _pairs_below(state: Ints, reaching: Floats, left: Ints, remaining: Floats, bound: float) -> tuple[Ints, Ints]:
    """(label, option), by label and then by option, of all pairs of a label and an option that begins in its state
    with reaching + remaining < bound, and of a few above it by less than rounding: [labels], [options] -> [pairs].

    Options of a state are sorted by what remains, so that pairs above the bound are never made: there can be thousands
    of times as many.
    """
    if not len(state):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.lexsort((remaining, left))
    by_state = np.argsort(state, kind="stable")
    states, first = np.unique(state[by_state], return_index=True)
    starts, stops = (np.searchsorted(left[order], states, side) for side in ("left", "right"))
    values = np.concatenate([reaching, remaining[np.isfinite(remaining)], [bound]])
    rounding = tuning.ROUNDING * float(np.abs(values).max())
    counts = np.zeros(len(state), np.int64)
    begins = np.zeros(len(state), np.int64)
    for labels, start, stop in zip(np.split(by_state, first[1:]), starts, stops, strict=True):
        below = np.searchsorted(remaining[order[start:stop]], bound + rounding - reaching[labels])
        counts[labels], begins[labels] = below, start
    label = np.repeat(np.arange(len(state)), counts)
    within = np.arange(len(label)) - np.repeat(np.cumsum(counts) - counts, counts)
    option = order[begins[label] + within]
    by_option = np.lexsort((option, label))
    return label[by_option], option[by_option]


def _undominated(labels: _Labels) -> _Labels:
    """Labels that no other at the same state beats in both seconds and bytes."""
    order = np.lexsort((labels.seconds, labels.bytes, labels.state))
    kept: list[Ints] = []
    of_states = np.split(order, np.flatnonzero(np.diff(labels.state[order])) + 1)
    for at_state in of_states if len(order) else ():
        quickest = np.minimum.accumulate(labels.seconds[at_state])
        first = np.concatenate([[True], quickest[1:] < quickest[:-1]])
        at_state = at_state[first]
        if len(at_state) > tuning.MOST_LABELS:
            spread = np.linspace(0, len(at_state) - 1, tuning.MOST_LABELS).round().astype(np.int64)
            at_state = at_state[spread]
        kept.append(at_state)
    return labels.at(np.concatenate(kept) if kept else np.zeros(0, np.int64))


def _block_choices(
    blocks: Sequence[BlockTable], options: dict[BlockTable, _Options], chosen: Sequence[int]
) -> list[BlockChoice]:
    """The choices behind the chosen option of each block."""
    choices = []
    for table, i in zip(blocks, chosen, strict=True):
        o = options[table]
        choices.append(table.choices(o.price[i : i + 1], o.left[i : i + 1], o.right[i : i + 1])[0])
    return choices
