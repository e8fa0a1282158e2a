"""The least costs of all layer ranges, exactly, from one contraction of every distinct block.

With S_k the separator between blocks k and k + 1, and minima over everything inside a block, let

    A_i(S_i)              block i that begins a stage        T_k(S_(k−1), S_k)    block k inside a stage
    Z_j(S_(j−1))          block j that ends a stage

The least cost of a range is a product in (min, +):  A_i ⊗ T_(i+1) ⊗ … ⊗ T_(j−1) ⊗ Z_j, computed from either end as a
vector times tables (`min_plus_products`), in place of L · (L + 1) / 2 solves. Equal blocks are contracted once. In
ranges that are chains except for a tied weight, the states of its nodes are carried along. Blocks that are too wide to
contract, and ranges that are not chains for other reasons, are left out and solved one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.composition import tuning
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.block_tables import BlockChoices, BlockTable, BlockTables
from alpa_explore.intra_op.composition.chain import NO_BLOCK, Chain, placed
from alpa_explore.intra_op.composition.cut_blocks import BlockCutter, Range, replicated_strategy
from alpa_explore.intra_op.composition.min_plus_products import (
    BestStates,
    PrefixCosts,
    best_states_of_mixtures,
    best_states_with_shared_nodes,
)
from alpa_explore.intra_op.stage.stage_graph import Holding, StageGraph
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.intra_op.stage.stage_totals import FIGURES, Figure, StageTotals, totals_of
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.sharding.spec import legal_specs, local_share


class ConstantBytes(NamedTuple):
    """Bytes of the constants of a range on one device."""

    weight: float
    """From step to step: frozen weights, buffers."""
    activation: float
    """For each microbatch."""

    def held(self, microbatches: float) -> float:
        """With so many microbatches held."""
        return self.weight + microbatches * self.activation


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComposedChoice:
    """A best choice of one layer range."""

    cost: float
    block_choices: tuple[tuple[int, ...], ...]
    """For each block the choices of the nodes that it owns (`whole_choice` puts them together)."""
    totals: StageTotals


class Composer:
    """Composes the layer ranges of one chain on one mesh, at any prices. Keeps the block subproblems."""

    def __init__(self, chain: Chain, stage_of: Callable[[int, int], StageGraph], model: CostModel) -> None:
        self.chain, self.stage_of = chain, stage_of
        self.cutter = BlockCutter(chain=chain, model=model)
        self._interned: dict[tuple[int, ...], tuple[int, ...]] = {}
        """Equal choices of blocks are one value."""

    def tables(self, prices: Sequence[Price], ranges: int = 1) -> BlockTables:
        """Tables at these prices, with a budget for so many ranges."""
        return BlockTables(self.cutter, prices, tuning.JOINED_ENTRIES_PER_RANGE * ranges)

    def solve(
        self,
        ranges: Collection[Range],
        prices: Sequence[Price],
        requested: Sequence[Collection[Range]] = (),
        tables: BlockTables | None = None,
    ) -> tuple[dict[Range, ComposedChoice | None], ...]:
        """For each price a best choice of every range that can be composed; None where no choice is legal.

        `requested`, where given, has for each price the ranges whose choices are needed. `tables` at these prices,
        where given, keep what was contracted for other ranges. A choice has the least cost by `StageProblem.at` with
        the same price, where constants are replicated and their bytes, which the totals have, are free. The result is
        empty where a block inside a range is too wide: few ranges could be composed.
        """
        best = self._best(ranges, tables or self.tables(prices, len(ranges)))
        if best is None:
            return tuple({} for _ in prices)
        wanted = {
            r: np.array(
                [p for p, of_price in enumerate(requested or (best,) * len(prices)) if r in of_price], dtype=np.int64
            )
            for r in best
        }
        choices = self._composed(best, {r: at[best[r].costs[at] < np.inf] for r, at in wanted.items()})
        composed: tuple[dict[Range, ComposedChoice | None], ...] = tuple({} for _ in prices)
        for r, at in wanted.items():
            for p in at.tolist():
                composed[p][r] = choices.get((r, p))
        return composed

    def mixtures(self, layers: Range, low: Price, high: Price) -> list[ComposedChoice]:
        """For every separator of a range, a best choice where the blocks in front of it have the price `high`, and
        those behind it the price `low`; none where blocks share nodes or are too wide."""
        blocks = self.cutter.of_range(*layers) or ()
        tables = self.tables((low, high)).of_blocks(blocks)
        if tables is None or any(block.shared for block in blocks):
            return []
        best = best_states_of_mixtures(tables)
        return list(self._composed({layers: best}, {layers: np.flatnonzero(best.costs < np.inf)}).values())

    def least_peaks(self, first: int, last: int, counts: Iterable[int]) -> tuple[float, ...] | None:
        """Lower bounds on the peak memory of every choice of a range, for each number of microbatches held in `counts`;
        None where the range is not a chain."""
        blocks = self.cutter.of_range(first, last)
        if blocks is None:
            return None
        least = np.concatenate([np.zeros(0), *(block.least_bytes for block in blocks)])
        intervals, outputs = self.chain.workspace(self.stage_of(first, last))
        running = float(intervals.peak(least[None, outputs])[0]) + self.cutter.model.device.reserved_bytes
        constants, equal = self.least_constant_bytes(first, last), Counter(blocks)
        return tuple(
            sum(times * block.least_held(held) for block, times in equal.items()) + constants.held(held) + running
            for held in counts
        )

    def least_constant_bytes(self, first: int, last: int) -> ConstantBytes:
        """Lower bounds on the bytes of the constants that a range holds, for any sharding."""
        return self._constants(first, last, self._least_bytes)

    def least_workspace(self, first: int, last: int) -> float:
        """Lower bound on the workspace of every choice of a range that can be cut into blocks.

        What is freed of what it holds is as large as it can be, and the rest as small.
        """
        blocks = self.cutter.of_range(first, last) or ()
        sizes = np.concatenate([np.zeros(0), *(block.least_bytes for block in blocks)])
        intervals, outputs = self.chain.workspace(self.stage_of(first, last))
        held = outputs[intervals.held]
        most = np.concatenate([np.zeros(0), *(block.most_bytes for block in blocks)])
        sizes[held] = most[held]
        return float(self._workspace(first, last, sizes[None])[0])

    def size(self, first: int, last: int) -> tuple[int, int]:
        """Variables and constraints of Eq. 1 for a range that is a chain, without those of its constants."""
        blocks = self.cutter.of_range(first, last) or ()
        return sum(b.variables for b in blocks), sum(b.constraints for b in blocks)

    def _best(self, ranges: Collection[Range], tables: BlockTables) -> dict[Range, BestStates] | None:
        """The least cost of every range that can be composed; None where a block inside a range is too wide."""
        chains = [r for r in ranges if self.chain.is_chain(*r)]
        parts_of = [self.chain.parts(*r) for r in chains]
        inner = sorted({place for parts in parts_of for place in zip(parts, parts[1:], parts[2:], strict=False)})
        if any(tables.table(place) is None for place in inner):
            return None
        best: dict[Range, BestStates] = {}
        # Ranges that begin with the same layer share prefixes, and those that end with the same layer share suffixes.
        firsts, lasts = Counter(first for first, _ in chains), Counter(last for _, last in chains)
        ends_of = [(k, {r[1] for r in chains if r[0] == k and lasts[r[1]] <= firsts[k]}) for k in firsts]
        ends_of += [(k, {r[0] for r in chains if r[1] == k and lasts[k] > firsts[r[0]]}) for k in lasts]
        for start, ends in ends_of:
            # The single layer `start` is computed to the right.
            for direction, far_ends in ((1, [k for k in ends if k >= start]), (-1, [k for k in ends if k < start])):
                best |= self._sweep(start, direction, far_ends, tables)
        for r in ranges:
            if not self.chain.is_chain(*r) and (of_range := tables.of_blocks(self.cutter.of_range(*r))) is not None:
                best[r] = best_states_with_shared_nodes(of_range)
        return {r: best[r] for r in ranges if r in best}

    def _sweep(
        self, start: int, direction: int, far_ends: Collection[int], tables: BlockTables
    ) -> dict[Range, BestStates]:
        """All ranges with one end at layer `start` and the other in `far_ends`, extended block by block.

        Those to the left of `start` (`direction` −1) are computed from right to left, by the same steps on transposed
        tables.
        """
        # prefixes[i] covers i blocks, and continues into a whole block.
        prefixes, best = [PrefixCosts(len(tables.prices), direction)], {}
        for end in sorted(far_ends, key=lambda k: k * direction):
            along = placed(self.chain.parts(min(start, end), max(start, end)))[::direction]
            blocks = len(along)
            # The last block may be a part of one: that changes the block before it, but no earlier one.
            while len(prefixes) < blocks - 1 and (inner := tables.table(along[len(prefixes) - 1])) is not None:
                prefixes.append(prefixes[-1].extended(inner))
            if len(prefixes) < blocks - 1:
                break
            closing = [tables.table(place) for place in along[max(blocks - 2, 0) :]]
            narrow = [table for table in closing if table is not None]
            if len(narrow) < len(closing):
                continue
            prefix = prefixes[max(blocks - 2, 0)]
            for table in narrow:
                prefix = prefix.extended(table)
            best[min(start, end), max(start, end)] = prefix.best_states()
        return best

    def _composed(
        self, best: Mapping[Range, BestStates], wanted: Mapping[Range, Ints]
    ) -> dict[tuple[Range, int], ComposedChoice]:
        """The choices of ranges at the prices with these numbers, from the states of their blocks. Every distinct state
        of a block is completed once."""
        wanted = {r: prices for r, prices in wanted.items() if len(prices)}  # a range may have no solution at any price
        orders = {r: _BlockOrder(best[r].tables) for r in wanted}
        codes: dict[BlockTable, list[Ints]] = {}
        for r, prices in wanted.items():
            of_range = orders[r].codes(best[r], prices)
            for table, places in orders[r].places.items():
                codes.setdefault(table, []).append(of_range[:, places].ravel())
        choices: dict[BlockTable, BlockChoices] = {}
        rows_of: dict[BlockTable, Ints] = {}
        for table, parts in codes.items():
            distinct, rows_of[table] = np.unique(np.concatenate(parts), return_inverse=True)
            choices[table] = table.choices_at(distinct, self._interned)
        begins = dict.fromkeys(codes, 0)
        composed = {}
        for r, prices in wanted.items():
            rows: dict[BlockTable, Ints] = {}
            for table, places in orders[r].places.items():
                begin = begins[table]
                begins[table] = end = begin + len(prices) * len(places)
                rows[table] = rows_of[table][begin:end].reshape(len(prices), -1)
            sums = orders[r].totals(choices, rows).tolist()
            workspace = self._workspace(*r, orders[r].output_bytes(choices, rows)).tolist()
            constants, parts_of = self.constant_bytes(*r), orders[r].choices(choices, rows)
            for p, chosen, totals, peak in zip(prices.tolist(), parts_of, sums, workspace, strict=True):
                composed[r, p] = self._choice(r, float(best[r].costs[p]), chosen, totals, constants, peak)
        return composed

    def _choice(
        self,
        layers: Range,
        cost: float,
        block_choices: tuple[tuple[int, ...], ...],
        totals: Sequence[float],
        constants: ConstantBytes,
        workspace: float,
    ) -> ComposedChoice:
        figures = list(totals)
        figures[Figure.WEIGHT_BYTES] += constants.weight
        figures[Figure.ACTIVATION_BYTES] += constants.activation
        return ComposedChoice(
            cost=cost,
            block_choices=block_choices,
            totals=totals_of(figures, workspace, self.stage_of(*layers), self.cutter.model),
        )

    def constant_bytes(self, first: int, last: int) -> ConstantBytes:
        """Bytes of the constants that a range holds; they are replicated."""
        tensors = self.chain.layered.graph.tensors
        return self._constants(first, last, lambda t: tensors[t].bytes)

    def _constants(self, first: int, last: int, size: Callable[[int], float]) -> ConstantBytes:
        """The bytes of the constants of a range, where a device has `size` of each."""
        sizes = dict.fromkeys(Holding, 0.0)
        for tensor, holding in self.stage_of(first, last).holdings().items():
            if tensor in self.chain.constants:
                sizes[holding] += size(tensor)
        return ConstantBytes(self.cutter.model.copies * sizes[Holding.LASTING], sizes[Holding.EACH_MICROBATCH])

    def _least_bytes(self, tensor: int) -> float:
        """Bytes of a tensor on one device, sharded as far as it can be."""
        model, whole = self.cutter.model, self.chain.layered.graph.tensors[tensor]
        specs = legal_specs(whole.shape, model.mesh.shape, partial=False)
        return whole.bytes * min(local_share(spec, model.mesh.shape) for spec in specs)

    def _workspace(self, first: int, last: int, local_bytes: Floats) -> Floats:
        """Workspace of a range whose operators' outputs have these sizes [rows, outputs], block after block."""
        intervals, outputs = self.chain.workspace(self.stage_of(first, last))
        return intervals.workspace(local_bytes[:, outputs]) + self.cutter.model.device.reserved_bytes


def whole_choice(chain: Chain, problem: StageProblem, block_choices: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The choice of every node of a stage, from `ComposedChoice.block_choices`."""
    owner = chain.owners(problem)
    remaining = iter(c for choices in block_choices for c in choices)
    whole = [0] * len(owner)
    for v in sorted(range(len(owner)), key=lambda v: (owner[v], v)):
        whole[v] = replicated_strategy(problem, v) if owner[v] == NO_BLOCK else next(remaining)
    return tuple(whole)


class _BlockOrder:
    """The blocks of a range in their order, of which many have the same table. Rows [prices, places] are those of the
    choices of each table."""

    def __init__(self, tables: Sequence[BlockTable]) -> None:
        self.places: dict[BlockTable, list[int]] = {}
        for place, table in enumerate(tables):
            self.places.setdefault(table, []).append(place)
        self._tables = tables

    def codes(self, best: BestStates, rows: Ints) -> Ints:
        """[rows, blocks]: a number for the price and the state of each block (`BlockTable.choices_at`)."""
        shapes = np.array([table.shared_costs.shape[1:] for table in self._tables], dtype=np.int64)
        of_shared = np.where(shapes[:, 0] > 1, best.shared_states[rows, None], 0)
        separators = best.states[rows]
        codes: Ints = (best.prices[rows] * shapes[:, 0] + of_shared) * shapes[:, 1] + separators[:, :-1]
        return codes * shapes[:, 2] + separators[:, 1:]

    def totals(self, choices: Mapping[BlockTable, BlockChoices], rows: Mapping[BlockTable, Ints]) -> Floats:
        """[prices, `FIGURES`], added from left to right."""
        parts = np.empty((len(self._tables), len(next(iter(rows.values()))), FIGURES))
        for table, places in self.places.items():
            parts[places] = choices[table].totals[rows[table]].swapaxes(0, 1)
        totals: Floats = parts.sum(axis=0)
        return totals

    def output_bytes(self, choices: Mapping[BlockTable, BlockChoices], rows: Mapping[BlockTable, Ints]) -> Floats:
        """[prices, outputs], block after block."""
        widths = np.array([choices[table].output_bytes.shape[1] for table in self._tables])
        ends = np.cumsum(widths)
        sizes = np.empty((len(next(iter(rows.values()))), int(ends[-1])))
        for table, places in self.places.items():
            width = choices[table].output_bytes.shape[1]
            at = (ends[places] - width)[:, None] + np.arange(width)
            sizes[:, at] = choices[table].output_bytes[rows[table]]
        return sizes

    def choices(
        self, choices: Mapping[BlockTable, BlockChoices], rows: Mapping[BlockTable, Ints]
    ) -> Iterator[tuple[tuple[int, ...], ...]]:
        """For each price the choice of every block."""
        parts: list[Iterable[tuple[int, ...]]] = [()] * len(self._tables)
        for table, places in self.places.items():
            of_table = choices[table].choices
            for place, of_place in zip(places, rows[table].T.tolist(), strict=True):
                parts[place] = [of_table[row] for row in of_place]
        return zip(*parts, strict=True)
