"""Products of tables in (min, +), and the way back: the best states of all separators of a stage.

A chain is worked out as a vector times tables (`Way`). Where weights are tied, everything depends on the state t of the
ties too; with M the product of the tables between the pieces that touch them, the same for every t,

    least cost = min over t of  A_t ⊗ M ⊗ … ⊗ Z_t

and M is found by halves, equal halves once: a run of equal layers takes as many products as doublings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from alpa_explore.intra_op.composition import contract_kernels
from alpa_explore.intra_op.composition.block_tables import PieceTable
from alpa_explore.numerics.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Paths:
    """The best way through the states of the separators of one range, for each price."""

    parts: tuple[PieceTable, ...]
    costs: Floats
    """[prices]"""
    states: Ints
    """[prices, parts + 1]: at the left and the right of every part."""
    ties: Ints
    """[prices]"""


class Way:
    """The least cost from one end of a stage to every state of a separator, and the way back for each price."""

    def __init__(self, prices: int, step: int) -> None:
        self.step = step
        """1 from left to right, −1 from right to left."""
        self.reached: Floats = np.zeros((prices, 1))
        self.parts: tuple[PieceTable, ...] = ()
        self.arrows: tuple[Ints, ...] = ()

    def to(self, part: PieceTable) -> Way:
        """One piece more."""
        longer = Way(len(self.reached), self.step)
        table = part.table
        longer.reached = np.empty((len(table), table.shape[2 if self.step > 0 else 1]))
        arrows = np.empty(longer.reached.shape, dtype=np.int64)
        kernel = contract_kernels.advance if self.step > 0 else contract_kernels.retreat
        kernel(self.reached, table, longer.reached, arrows)
        longer.parts, longer.arrows = (*self.parts, part), (*self.arrows, arrows)
        return longer

    def paths(self) -> Paths:
        """Of the range that ends here."""
        each = np.arange(len(self.reached))
        states = [np.zeros_like(each)]
        for arrows in reversed(self.arrows):
            states.append(arrows[each, states[-1]])
        order = states[:: -self.step]
        return Paths(
            parts=self.parts[:: self.step],
            costs=self.reached[:, 0],
            states=np.stack(order, axis=1),
            ties=np.zeros_like(each),
        )


def tied_paths(parts: Sequence[PieceTable]) -> Paths:
    """Of a range whose pieces share ties."""
    prices = len(parts[0].tied)
    products = _Products()
    reached = [np.zeros((prices, 1, 1))]
    """[prices, ties, states] at the left end and behind every run."""
    runs: list[_Run | PieceTable] = []
    for tied, some in groupby(parts, key=lambda part: bool(part.piece.ties)):
        for run in list(some) if tied else [products.of(list(some))]:
            runs.append(run)
            reached.append(_times(reached[-1], run.tied if isinstance(run, PieceTable) else run.table[:, None]))
    costs = reached[-1][:, :, 0]
    ties = costs.argmin(axis=1)
    states = np.zeros((prices, len(parts) + 1), dtype=np.int64)
    for p in range(prices):
        found = [0]
        for before, run in zip(reversed(reached[:-1]), reversed(runs), strict=True):
            table = run.tied[p, _own(ties[p], run.tied)] if isinstance(run, PieceTable) else run.table[p]
            start = int((before[p, _own(ties[p], before)] + table[:, found[-1]]).argmin())
            inside = run.inside(p, start, found[-1]) if isinstance(run, _Run) else []
            found += [*reversed(inside), start]
        states[p] = found[::-1]
    return Paths(parts=tuple(parts), costs=costs.min(axis=1), states=states, ties=ties)


def _own(tie: int, table: Floats) -> int:
    """`tie`, or 0 where all ties share a table."""
    return tie if table.shape[1] > 1 else 0


def _times(reached: Floats, table: Floats) -> Floats:
    """[prices, ties, states] ⊗ [prices, ties, states, others]; the ties of one may be one for all of the other."""
    prices, _, states, others = table.shape
    ties = max(reached.shape[1], table.shape[1])
    found = np.empty((prices, ties, others))
    if table.shape[1] == 1:
        contract_kernels.multiply(np.ascontiguousarray(reached), np.ascontiguousarray(table[:, 0]), found)
        return found
    each = np.ascontiguousarray(np.broadcast_to(reached, (prices, ties, states))).reshape(-1, 1, states)
    flat = found.reshape(-1, 1, others)
    contract_kernels.multiply(each, np.ascontiguousarray(table).reshape(-1, states, others), flat)
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Run:
    """The product of neighbouring parts without ties."""

    table: Floats
    """[prices, left, right]"""
    halves: tuple[_Run, _Run] | None

    def inside(self, price: int, left: int, right: int) -> list[int]:
        """States of the separators between its parts, when these are the states at its ends."""
        if self.halves is None:
            return []
        one, other = self.halves
        middle = int((one.table[price, left] + other.table[price, :, right]).argmin())
        return [*one.inside(price, left, middle), middle, *other.inside(price, middle, right)]


class _Products:
    """Products of runs; equal ones are made once."""

    def __init__(self) -> None:
        self._single: dict[PieceTable, _Run] = {}
        self._pairs: dict[tuple[_Run, _Run], _Run] = {}

    def of(self, parts: Sequence[PieceTable]) -> _Run:
        """Neighbours are joined in pairs until one is left."""
        runs = [self._single.setdefault(part, _Run(table=part.table, halves=None)) for part in parts]
        while len(runs) > 1:
            pairs = [self._pair(one, other) for one, other in zip(runs[::2], runs[1::2], strict=False)]
            runs = pairs + runs[len(pairs) * 2 :]
        return runs[0]

    def _pair(self, one: _Run, other: _Run) -> _Run:
        if (one, other) not in self._pairs:
            table = np.empty((len(one.table), one.table.shape[1], other.table.shape[2]))
            contract_kernels.multiply(one.table, other.table, table)
            self._pairs[one, other] = _Run(table=table, halves=(one, other))
        return self._pairs[one, other]
