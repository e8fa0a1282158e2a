"""Choices of a range that fit, put together from what its blocks choose at several prices.

At a price λ the slack of a pair of states (left, right) of a block is by how much the cheapest way through it exceeds
the cheapest way of all; pairs whose slack is more than what a better choice could save are in none. For those left the
choices of the block at prices around λ are its *options*, (seconds, bytes). Labels, sums of options from the left end
to a separator, are kept where none is better in both, and where they may still end in something better:

    seconds + λ · (bytes − room) + cheapest rest(state)   <   the best that fits
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.block_tables import Filled, PieceTable, PieceTables
from alpa_explore.intra_op.composition.compose import Composed, Composer
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.numerics.arrays import Floats, Ints

AROUND = (0.5, 0.8, 0.95, 1.05, 1.25, 2.0)
"""Prices at which blocks are asked, in times of the best."""
WIDEST = 0.02
"""Slack that is looked at, of the whole, where nothing that fits is known."""
MOST_LABELS = 400
"""At one state; thinned out evenly beyond."""
MOST_PAIRS = 2_000
"""Of states of a block that are looked at: those of the least slack. What all choices of them take is worked out, so
that is where the time goes."""
TRIES = 12
"""Labels whose workspace is worked out."""


@dataclass(frozen=True, slots=True)
class _Options:
    """Choices of a block, [options] each: left and right state, where it is in the table, what it takes."""

    left: Ints
    right: Ints
    price: Ints
    totals: Floats
    """[options, 4], as Piece.totals."""


def mix(
    composer: Composer,
    layers: Range,
    wanted: Sequence[tuple[Price, float, Composed | None]],
    limit: float,
    known: PieceTables | None = None,
) -> Iterator[Composed]:
    """For each of (price where the bound is highest, bound, best known that fits) a choice that fits, where one is
    found that is better.

    `known` has tables at other prices around these, and at each of these for a byte, beside as many microbatches or
    fewer.
    """
    if known is None or not {w.memory_price for w, _, _ in wanted} <= {p.memory_price for p in known.prices}:
        around = [price._replace(memory_price=price.memory_price * times) for price, _, _ in wanted for times in AROUND]
        prices = dict.fromkeys([*(price for price, _, _ in wanted), *around])
        known = PieceTables(composer.pieces, list(prices), np.inf)
    tables = known.of(composer.pieces.of(*layers))
    if tables is None:
        return
    place = {p.memory_price: i for i, p in reversed(list(enumerate(known.prices)))}
    # Beside fewer microbatches the cheapest rest costs no more, so it bounds as well.
    ways = {price: _Potentials(tables, place[price.memory_price]) for price, _, _ in wanted}
    slack = {
        price: min(WIDEST * abs(bound), np.inf if best is None else best.cost - bound) for price, bound, best in wanted
    }
    pairs: dict[PieceTable, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]] = {}
    for price, way in ways.items():
        for i, table in enumerate(tables):
            near = _nearest(way.slack(i), slack[price])
            pairs[table] = pairs[table] | near if table in pairs else near
    options = {table: _options(table, near) for table, near in pairs.items()}
    least_workspace = composer.least_workspace(*layers)
    constants = composer.constant_bytes(*layers)
    for price, bound, best in wanted:
        room = limit - least_workspace - price.microbatches_held * constants
        labels = _Labels(
            tables, options, ways[price], price, room, np.inf if best is None else best.cost, bound + slack[price]
        )
        for cost, chosen in labels.ends():
            filled = _filled(tables, options, chosen)
            choice = composer.joined(layers, cost, filled)
            t = choice.totals
            if t.weight_bytes + price.microbatches_held * t.activation_bytes + t.workspace_bytes <= limit:
                yield choice
                break


class _Potentials:
    """The cheapest ways from both ends of a range to every state of its separators, at one price."""

    def __init__(self, tables: Sequence[PieceTable], price: int) -> None:
        self.tables = [table.table[price] for table in tables]
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


def _nearest(slack: Floats, most: float) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """The pairs of states within `most`, or where they are too many those of the least slack."""
    if slack.size > MOST_PAIRS:
        most = min(most, float(np.partition(slack, MOST_PAIRS - 1, axis=None)[MOST_PAIRS - 1]))
    return np.asarray(slack <= most)


def _options(table: PieceTable, near: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> _Options:
    """What a block chooses at every price for these pairs of states; of equal ones the first."""
    left, right = np.nonzero(near)
    prices = len(table.table)
    left, right = np.tile(left, prices), np.tile(right, prices)
    price = np.repeat(np.arange(prices), near.sum())
    totals = table.totals(price, left, right)
    rows = np.column_stack([left, right, totals])
    _, first = np.unique(rows, axis=0, return_index=True)
    return _Options(left[first], right[first], price[first], totals[first])


class _Labels:
    """Sums of options along a range beside a number of microbatches."""

    def __init__(
        self,
        tables: Sequence[PieceTable],
        options: dict[PieceTable, _Options],
        way: _Potentials,
        price: Price,
        room: float,
        best: float,
        most: float,
    ) -> None:
        self.room, self.best = room, best
        worth = price.memory_price
        self.sets: list[tuple[Ints, Floats, Floats, Ints, Ints]] = [
            (np.zeros(1, np.int64), np.zeros(1), np.zeros(1), np.zeros(1, np.int64), np.zeros(1, np.int64))
        ]
        """Behind every block: state, seconds, bytes, label before, option."""
        for i, table in enumerate(tables):
            o = options[table]
            seconds = o.totals[:, 0] + price.inverse_b * o.totals[:, 1]
            amounts = o.totals[:, 2] + price.microbatches_held * o.totals[:, 3]
            state, taken, used, _, _ = self.sets[-1]
            # Every label with every option that begins where it ends.
            at, option = np.nonzero(state[:, None] == o.left[None, :])
            total, amount, end = taken[at] + seconds[option], used[at] + amounts[option], o.right[option]
            may = total + worth * (amount - room) + way.behind[i + 1][end] < min(best, most)
            self.sets.append(_better(end[may], total[may], amount[may], at[may], option[may]))

    def ends(self) -> Iterator[tuple[float, list[int]]]:
        """(seconds, option of every block) of the fastest labels that may fit, few of them."""
        _, seconds, used, _, _ = self.sets[-1]
        order = [i for i in np.argsort(seconds) if used[i] <= self.room and seconds[i] < self.best]
        # Beyond the first few their workspace is what keeps them from fitting: larger steps.
        step = max(1, len(order) // TRIES)
        for i in [*order[: TRIES // 2], *order[TRIES // 2 :: step]]:
            chosen, label = [], int(i)
            for _, _, _, before, option in reversed(self.sets[1:]):
                chosen.append(int(option[label]))
                label = int(before[label])
            yield float(seconds[i]), chosen[::-1]


def _better(
    state: Ints, seconds: Floats, amount: Floats, before: Ints, option: Ints
) -> tuple[Ints, Floats, Floats, Ints, Ints]:
    """Labels that no other at the same state beats in both."""
    order = np.lexsort((seconds, amount, state))
    kept: list[Ints] = []
    for s in np.unique(state):
        here = order[state[order] == s]
        quickest = np.minimum.accumulate(seconds[here])
        first = np.concatenate([[True], quickest[1:] < quickest[:-1]])
        here = here[first]
        if len(here) > MOST_LABELS:
            here = here[np.linspace(0, len(here) - 1, MOST_LABELS).round().astype(np.int64)]
        kept.append(here)
    chosen = np.concatenate(kept) if kept else np.zeros(0, np.int64)
    return state[chosen], seconds[chosen], amount[chosen], before[chosen], option[chosen]


def _filled(tables: Sequence[PieceTable], options: dict[PieceTable, _Options], chosen: Sequence[int]) -> list[Filled]:
    """The choices behind options."""
    found = []
    for table, i in zip(tables, chosen, strict=True):
        o = options[table]
        found.append(table.fill(o.price[i : i + 1], o.left[i : i + 1], o.right[i : i + 1])[0])
    return found
