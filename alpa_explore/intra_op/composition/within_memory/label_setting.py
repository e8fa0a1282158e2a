"""Label setting: choices of a range that fit in memory, combined from what its blocks choose at several prices.

At a price λ the slack of a pair of states (left, right) of a block is the cost of the cheapest choice with that pair
minus the least cost of all choices. Pairs with more slack than a better choice could save are in none. For the other
pairs, the choices of the block at prices around λ are its *options*, each with (seconds, bytes). *Labels*, sums of
options from the left end to a separator, are kept where no other label is better in both figures, and where they may
still become better than the best known choice:

    seconds + λ · (bytes − room) + least cost of the remaining blocks(state)   <   the best that fits

The bytes of an option are the derivative of its cost by λ, and its activation bytes that by the microbatches held: they
are differences of tables at prices that lie close together (`block_slopes`), as completing every option would take most
of the time. Where the best choice changes between such prices, the figures of an option lie between those of both; what
is returned is completed, and its bytes are counted, before it is said to fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.block_tables import BlockChoice, BlockTable, BlockTables
from alpa_explore.intra_op.composition.compose import ComposedChoice, Composer
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.composition.within_memory import tuning
from alpa_explore.intra_op.composition.within_memory.block_slopes import BlockSlopes, block_slopes
from alpa_explore.intra_op.composition.within_memory.label_kernels import extend_labels
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
class Options:
    """Choices of a block, [options] each."""

    left: Ints
    right: Ints
    price: Ints
    """The number of the price at which it was chosen."""
    seconds: Floats
    held_bytes: Floats
    """With as many microbatches held as that price has."""
    more_bytes: Floats
    """For each microbatch more."""

    def bytes_held(self, prices: Sequence[Price], microbatches: float) -> Floats:
        """With so many microbatches held."""
        more = microbatches - np.array([price.microbatches_held for price in prices], dtype=np.float64)
        return self.held_bytes + more[self.price] * self.more_bytes


class Labels(NamedTuple):
    """Labels behind one block, [labels] each."""

    state: Ints
    seconds: Floats
    bytes: Floats
    previous: Ints
    """The label behind the block before."""
    option: Ints
    """The option of this block."""

    def at(self, chosen: Ints) -> Labels:
        """The labels with these numbers (or flags)."""
        return Labels(
            self.state[chosen], self.seconds[chosen], self.bytes[chosen], self.previous[chosen], self.option[chosen]
        )


def combine_block_choices(
    composer: Composer, layers: Range, requests: Sequence[Request], limit: float, tables: BlockTables | None = None
) -> Iterator[ComposedChoice]:
    """For each request a choice that fits in `limit` bytes and is better than the best known one, where one is found.

    `tables`, where given, have a price for each request with the same price of a byte, for as many microbatches held or
    fewer, and other prices around it; else tables are made. All prices must be positive.
    """
    if tables is None or not {r.price.memory_price for r in requests} <= {p.memory_price for p in tables.prices}:
        tables = BlockTables(composer.cutter, _prices_around(requests), np.inf)
    subproblems = composer.cutter.of_range(*layers)
    blocks = tables.of_blocks(subproblems)
    if subproblems is None or blocks is None:
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
    more_held = any(r.price.microbatches_held != p.microbatches_held for r in requests for p in tables.prices)
    slopes = block_slopes(tables, subproblems, more_held=more_held)
    options = {table: _options(table, slopes[table], tables.prices, near) for table, near in pairs.items()}
    least_workspace = composer.least_workspace(*layers)
    constants = composer.constant_bytes(*layers)
    for request in requests:
        price = request.price
        search = _LabelSearch(
            price=price,
            room=limit - least_workspace - constants.held(price.microbatches_held),
            best=request.best_cost(),
            most=request.bound + slack[price],
        )
        search.run([options[table] for table in blocks], tables.prices, potentials[price])
        for cost, chosen in search.ends():
            choice = composer.joined(layers, cost, _block_choices(blocks, options, chosen))
            if choice.totals.peak_bytes(price.microbatches_held) <= limit:
                yield choice
                break


def _prices_around(requests: Sequence[Request]) -> list[Price]:
    """The prices of the requests, and others around them; of those that are nearly equal one."""
    prices = list(dict.fromkeys(r.price for r in requests))
    for price in tuple(prices):
        for times in tuning.OPTION_PRICES:
            other = price.memory_price * times
            if all(abs(other - p.memory_price) > tuning.NEARLY_EQUAL_PRICES * other for p in prices):
                prices.append(price._replace(memory_price=other))
    return prices


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


def _options(table: BlockTable, slopes: BlockSlopes, prices: Sequence[Price], near: Flags) -> Options:
    """What a block chooses at every price for these pairs of states; of choices with nearly equal bytes one."""
    left, right = np.nonzero(near)
    held_bytes, more_bytes = slopes.held_bytes[:, near], slopes.more_bytes[:, near]
    memory_prices = np.array([price.memory_price for price in prices])
    seconds = table.costs[:, near] - memory_prices[:, None] * held_bytes
    # In the order of their weights and activations, equal choices of a pair of states lie side by side.
    order = np.lexsort((more_bytes, held_bytes), axis=0)
    different = np.ones(order.shape, dtype=np.bool_)
    different[1:] = False
    for figure in (held_bytes, more_bytes):
        ordered = np.take_along_axis(figure, order, axis=0)
        largest = np.abs(ordered).max(axis=0, initial=0.0)
        different[1:] |= np.abs(np.diff(ordered, axis=0)) > tuning.EQUAL_OPTIONS * largest
    chosen = np.zeros(order.shape, dtype=np.bool_)
    np.put_along_axis(chosen, order, different, axis=0)
    price, pair = np.nonzero(chosen)
    at = price, pair
    return Options(left[pair], right[pair], price, seconds[at], held_bytes[at], more_bytes[at])


@dataclass(slots=True, kw_only=True, eq=False)
class _LabelSearch:
    """The labels along a range for one request."""

    price: Price
    room: float
    best: float
    """Seconds of the best known choice."""
    most: float
    """Seconds up to which labels are followed."""
    labels: list[Labels] = field(default_factory=list)
    """Behind every block."""

    def run(self, options: Sequence[Options], prices: Sequence[Price], potentials: _Potentials) -> None:
        """Extend the labels block by block."""
        start = np.zeros(1, np.int64)
        self.labels = [Labels(start, np.zeros(1), np.zeros(1), start, start)]
        bound = min(self.best, self.most)
        for o, behind in zip(options, potentials.behind[1:], strict=True):
            option_bytes = o.bytes_held(prices, self.price.microbatches_held)
            self.labels.append(
                extended(self.labels[-1], o, o.seconds, option_bytes, behind, (self.price, self.room, bound))
            )

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


def extended(
    labels: Labels,
    options: Options,
    option_seconds: Floats,
    option_bytes: Floats,
    behind: Floats,
    limits: tuple[Price, float, float],
) -> Labels:
    """Labels extended by the options of the next block, by state and then by bytes: those that no other label at the
    same state beats in both seconds and bytes, with a cost up to the bound in `limits` (price, room, bound).

    Among very many labels at a state, of those with nearly equal bytes the fastest is kept.
    """
    price, room, bound = limits
    remaining = option_seconds + price.memory_price * option_bytes + behind[options.right]
    order = np.lexsort((remaining, options.left))
    order = order[np.isfinite(remaining[order])]
    if not len(order) or not len(labels.state):
        return labels.at(np.zeros(0, np.int64))
    states, end = np.unique(options.right[order], return_inverse=True)
    buckets = max(tuning.MOST_LABELS, min(tuning.BUCKETS // len(states), 4 * tuning.MOST_LABELS))
    shape = len(states), buckets
    seconds, held_bytes = np.full(shape, np.inf), np.zeros(shape)
    label, option = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    reaching = labels.seconds + price.memory_price * (labels.bytes - room)
    largest = max(float(np.abs(reaching).max()), float(np.abs(remaining[order]).max()), abs(bound))
    by_cost = np.lexsort((reaching, labels.state))
    every_state = np.arange(int(max(labels.state.max(), options.left.max())) + 2)
    extend_labels(
        np.searchsorted(labels.state[by_cost], every_state),
        labels.seconds[by_cost],
        labels.bytes[by_cost],
        reaching[by_cost],
        np.searchsorted(options.left[order], every_state),
        end,
        option_seconds[order],
        option_bytes[order],
        remaining[order],
        behind[options.right[order]],
        price.memory_price,
        room,
        bound,
        tuning.ROUNDING * largest,
        seconds,
        held_bytes,
        label,
        option,
    )
    row, bucket = undominated(seconds)
    at = row, bucket
    return Labels(states[row], seconds[at], held_bytes[at], by_cost[label[at]], order[option[at]])


def undominated(seconds: Floats) -> tuple[Ints, Ints]:
    """(row, column) of the entries [rows, columns] that are less than all before them in their row; where they are too
    many in a row, some of them, evenly spread."""
    least = np.minimum.accumulate(seconds, axis=1)
    kept = np.isfinite(seconds)
    kept[:, 1:] &= seconds[:, 1:] < least[:, :-1]
    most = tuning.MOST_LABELS
    for row in np.flatnonzero(kept.sum(axis=1) > most):
        columns = np.flatnonzero(kept[row])
        kept[row] = False
        kept[row, columns[np.linspace(0, len(columns) - 1, most).round().astype(np.int64)]] = True
    rows, columns = np.nonzero(kept)
    return rows, columns


def _block_choices(
    blocks: Sequence[BlockTable], options: dict[BlockTable, Options], chosen: Sequence[int]
) -> list[BlockChoice]:
    """The choices behind the chosen option of each block."""
    choices = []
    for table, i in zip(blocks, chosen, strict=True):
        o = options[table]
        choices.append(table.choices(o.price[i : i + 1], o.left[i : i + 1], o.right[i : i + 1])[0])
    return choices
