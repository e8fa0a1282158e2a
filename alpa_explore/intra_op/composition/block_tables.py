"""Contracted blocks: least costs over the states of their separators at some prices, and the best choices behind them.

A *state* of a separator is one combination of strategies of its nodes, numbered in C order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from alpa_explore.intra_op.composition import tuning
from alpa_explore.intra_op.composition.block_subproblem import BlockSubproblem, Price
from alpa_explore.intra_op.composition.chain import Place
from alpa_explore.intra_op.composition.contraction.contract import Contraction, contract
from alpa_explore.intra_op.composition.contraction.tuning import LIMITS
from alpa_explore.intra_op.composition.cut_blocks import BlockCutter
from alpa_explore.numerics.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockChoices:
    """The best choices of a block in some states."""

    choices: list[tuple[int, ...]]
    """For each row those of the nodes that the block owns."""
    totals: Floats
    """[rows, `FIGURES`], as `BlockSubproblem.totals`."""
    output_bytes: Floats
    """[rows, outputs]: on one device, of every output of every operator."""


class DirectedTable:
    """Costs as a chain reads them that is extended in one direction, row by row."""

    def __init__(self, costs: Floats) -> None:
        self.costs = costs
        """[prices, states in front, states behind]"""
        prices, states, _ = costs.shape
        self.pivots: Ints = np.full((prices, tuning.PIVOTS), -1, dtype=np.int64)
        self.excess: Floats = np.empty((prices, tuning.PIVOTS, states))
        """Both as `kernels.extend` fills them in."""


class BlockTable:
    """A block at some prices: its least cost for every state."""

    def __init__(self, block: BlockSubproblem, contraction: Contraction) -> None:
        self.block, self.contraction = block, contraction
        self._sides = sides = (block.shared, block.left, block.right)
        sizes = {v: len(block.problem.nodes[v].microbatch_seconds) for v in contraction.keep}
        shape = tuple(math.prod(sizes[v] for v in nodes) for nodes in sides)
        table = contraction.table
        if len(contraction.keep) < sum(map(len, sides)):
            table = _with_repeated_nodes(table, sizes, sides, [block.strategies(nodes) for nodes in sides])
        self.shared_costs: Floats = table.reshape(-1, *shape)
        """[prices, shared states, left, right]; inf where no choice is legal."""

    @property
    def costs(self) -> Floats:
        """[prices, left, right] of a block without shared nodes."""
        assert self.shared_costs.shape[1] == 1
        return self.shared_costs[:, 0]

    def directed(self, direction: int) -> DirectedTable:
        """The costs of a block without shared nodes for a chain that is extended to the right (1) or the left (−1)."""
        return self._to_the_right if direction > 0 else self._to_the_left

    @cached_property
    def _to_the_right(self) -> DirectedTable:
        return DirectedTable(self.costs)

    @cached_property
    def _to_the_left(self) -> DirectedTable:
        return DirectedTable(np.ascontiguousarray(self.costs.transpose(0, 2, 1)))

    def choices_at(self, codes: Ints, interned: dict[tuple[int, ...], tuple[int, ...]]) -> BlockChoices:
        """The best choices at some entries of `shared_costs`, given by their places in C order; equal choices are one
        value in `interned`."""
        prices, *states = np.unravel_index(codes, self.shared_costs.shape)
        choices = self.complete(np.asarray(prices, dtype=np.int64), np.column_stack(states))
        totals, sizes = self.block.totals(choices)
        owned = [tuple(row) for row in choices[:, list(self.block.owned)].tolist()]
        return BlockChoices(choices=[interned.setdefault(row, row) for row in owned], totals=totals, output_bytes=sizes)

    def complete(self, prices: Ints, states: Ints) -> Ints:
        """For each row of `states` [rows, (shared, left, right)] the best choice of all nodes, [rows, nodes]."""
        strategies: dict[int, Ints] = {}
        for nodes, of_side in zip(self._sides, states.T, strict=True):
            strategies.update(zip(nodes, self.block.strategies(nodes, of_side), strict=True))
        keep = self.contraction.keep
        kept = np.array([strategies[v] for v in keep], dtype=np.int64).reshape(-1, len(prices)).T
        return self.contraction.complete(prices, kept)


class BlockTables:
    """The tables of the blocks of one chain at some prices; each block is contracted once."""

    def __init__(self, cutter: BlockCutter, prices: Sequence[Price], joined_entries: float) -> None:
        """`joined_entries` is the largest elimination, in joined entries at each price, that a block may take."""
        self.cutter, self.prices = cutter, prices
        self.limits = replace(LIMITS, joined_entries=joined_entries)
        self.known: dict[BlockSubproblem, BlockTable | None] = {}

    def table(self, place: Place) -> BlockTable | None:
        """The table of a block between its neighbours; None where it cannot be cut out or is too wide."""
        block = self.cutter.block(place)
        return None if block is None else self._table(block)

    def of_blocks(self, blocks: Sequence[BlockSubproblem] | None) -> tuple[BlockTable, ...] | None:
        """The tables of blocks; None where one is too wide, and where there are no blocks."""
        tables = [self._table(block) for block in blocks or ()]
        contracted = tuple(table for table in tables if table is not None)
        return contracted if contracted and len(contracted) == len(tables) else None

    def _table(self, block: BlockSubproblem) -> BlockTable | None:
        if block not in self.known:
            contraction = self._contract(block)
            self.known[block] = None if contraction is None else BlockTable(block, contraction)
        return self.known[block]

    def _contract(self, block: BlockSubproblem) -> Contraction | None:
        keep = tuple(dict.fromkeys((*block.shared, *block.left, *block.right)))
        entries = math.prod(len(block.problem.nodes[v].microbatch_seconds) for v in keep)
        if block.shared and entries > tuning.SHARED_ENTRIES:
            return None
        return contract(block.at(self.prices), keep, self.limits)


def _with_repeated_nodes(
    table: Floats, sizes: Mapping[int, int], sides: Sequence[Sequence[int]], states: Sequence[Ints]
) -> Floats:
    """A table over the nodes of `sizes` (node -> its strategies) as one over the states of the sides, where a node is
    on several sides: inf where the states of the sides disagree on it."""
    strategy_of: dict[int, Ints] = {}
    agree = np.ones(tuple(s.shape[1] for s in states), dtype=np.bool_)
    for axis, (nodes, strategies) in enumerate(zip(sides, states, strict=True)):
        along = tuple(-1 if axis == i else 1 for i in range(len(states)))
        for v, strategy in zip(nodes, strategies, strict=True):
            agree &= strategy.reshape(along) == strategy_of.setdefault(v, strategy.reshape(along))
    entry: Ints = np.zeros((1,) * len(states), dtype=np.int64)
    for v, size in sizes.items():
        entry = entry * size + strategy_of[v]
    costs: Floats = table[:, np.broadcast_to(entry, agree.shape)]
    return np.where(agree, costs, np.inf)
