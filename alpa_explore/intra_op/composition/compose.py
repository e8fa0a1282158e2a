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
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from alpa_explore.cost.memory import peak_bytes
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.composition import tuning
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.block_tables import BlockChoice, BlockTable, BlockTables, State
from alpa_explore.intra_op.composition.chain import CONSTANT, BlockPart, Chain
from alpa_explore.intra_op.composition.cut_blocks import BlockCutter, Range, replicated_strategy
from alpa_explore.intra_op.composition.min_plus_products import (
    BestStates,
    PrefixCosts,
    best_states_with_shared_nodes,
)
from alpa_explore.intra_op.stage.host_time import PassSeconds, paced_seconds
from alpa_explore.intra_op.stage.stage_graph import StageGraph
from alpa_explore.intra_op.stage.stage_problem import StageProblem, StageTotals
from alpa_explore.numerics.arrays import Floats
from alpa_explore.sharding.spec import legal_specs, local_share


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
        the same price, where constants are replicated and their bytes are free. The result is empty where a block
        inside a range is too wide: few ranges could be composed.
        """
        best = self._best(ranges, tables or self.tables(prices, len(ranges)))
        if best is None:
            return tuple({} for _ in prices)
        # The states of every block, for each range and price that has a choice: all are requested before any choice is
        # computed.
        states = {
            (r, p): _block_states(of_range, p)
            for r, of_range in best.items()
            for p in range(len(prices))
            if of_range.costs[p] < np.inf and (not requested or r in requested[p])
        }
        for (r, p), block_states in states.items():
            for table, state in zip(best[r].tables, block_states, strict=True):
                table.request(p, state)
        return tuple(
            {
                r: self._composed(r, of_range, p, states.get((r, p)))
                for r, of_range in best.items()
                if not requested or r in requested[p]
            }
            for p in range(len(prices))
        )

    def least_costs(self, ranges: Collection[Range], price: Price) -> dict[Range, float]:
        """The least cost of every range that can be composed, as of the choices of `solve`; inf where none is legal."""
        best = self._best(ranges, self.tables((price,), len(ranges)))
        return {r: float(of_range.costs[0]) for r, of_range in (best or {}).items()}

    def least_peaks(self, first: int, last: int, counts: Iterable[int]) -> tuple[float, ...] | None:
        """Lower bounds on the peak memory of every choice of a range, for each number of microbatches held in `counts`;
        None where the range is not a chain."""
        blocks = self.cutter.of_range(first, last)
        if blocks is None:
            return None
        workspace, constants = self.least_workspace(first, last), self.least_constant_bytes(first, last)
        return tuple(sum(b.least_held(held) for b in blocks) + held * constants + workspace for held in counts)

    def least_constant_bytes(self, first: int, last: int) -> float:
        """Lower bound on the bytes of the constants that a range holds for each microbatch, for any sharding."""
        return sum(self._least_bytes(t) for t in self._held_constants(first, last))

    def least_workspace(self, first: int, last: int) -> float:
        """Lower bound on the workspace of every choice of a range that can be cut into blocks."""
        return self._workspace(first, last, [b.least_bytes for b in self.cutter.of_range(first, last) or ()])

    def size(self, first: int, last: int) -> tuple[int, int]:
        """Variables and constraints of Eq. 1 for a range that is a chain, without those of its constants."""
        blocks = self.cutter.of_range(first, last) or ()
        return sum(b.variables for b in blocks), sum(b.constraints for b in blocks)

    def _best(self, ranges: Collection[Range], tables: BlockTables) -> dict[Range, BestStates] | None:
        """The least cost of every range that can be composed; None where a block inside a range is too wide."""
        chains = [r for r in ranges if self.chain.is_chain(*r)]
        parts_of = [self.chain.parts(*r) for r in chains]
        inner = sorted({triple for parts in parts_of for triple in zip(parts, parts[1:], parts[2:], strict=False)})
        if any(tables.table(*triple) is None for triple in inner):
            return None
        best: dict[Range, BestStates] = {}
        # Ranges that begin with the same layer share prefixes, and those that end with the same layer share suffixes.
        firsts, lasts = Counter(first for first, _ in chains), Counter(last for _, last in chains)
        for first in firsts:
            self._sweep(first, {r[1] for r in chains if r[0] == first and lasts[r[1]] <= firsts[first]}, tables, best)
        for last in lasts:
            self._sweep(last, {r[0] for r in chains if r[1] == last and lasts[last] > firsts[r[0]]}, tables, best)
        for r in ranges:
            if not self.chain.is_chain(*r) and (of_range := tables.of_blocks(self.cutter.of_range(*r))) is not None:
                best[r] = best_states_with_shared_nodes(of_range)
        return best

    def _sweep(self, start: int, ends: Collection[int], tables: BlockTables, best: dict[Range, BestStates]) -> None:
        """All ranges with one end at layer `start` and the other in `ends`, extended block by block.

        Those to the left of `start` are computed from right to left, by the same steps on transposed tables.
        """
        # The single layer `start` is computed to the right.
        for direction, far_ends in ((1, [k for k in ends if k >= start]), (-1, [k for k in ends if k < start])):
            # prefixes[i] covers i blocks, and continues into a whole block.
            prefixes = [PrefixCosts(len(tables.prices), direction)]
            for end in sorted(far_ends, key=lambda k: k * direction):
                parts = self.chain.parts(min(start, end), max(start, end))[::direction]
                along = _OrderedTables(tables, parts, direction)
                blocks = len(parts)
                # The last block may be a part of one: that changes the block before it, but no earlier one.
                while len(prefixes) < blocks - 1 and (inner := along.table(len(prefixes) - 1)) is not None:
                    prefixes.append(prefixes[-1].extended(inner))
                if len(prefixes) < blocks - 1:
                    break
                closing = [along.table(i) for i in range(max(blocks - 2, 0), blocks)]
                narrow = [table for table in closing if table is not None]
                if len(narrow) < len(closing):
                    continue
                prefix = prefixes[max(blocks - 2, 0)]
                for table in narrow:
                    prefix = prefix.extended(table)
                best[min(start, end), max(start, end)] = prefix.best_states()

    def joined(self, layers: Range, cost: float, choices: Sequence[BlockChoice]) -> ComposedChoice:
        """The choices of the blocks of a range as one choice."""
        sums = np.sum([choice.totals for choice in choices], axis=0)
        return ComposedChoice(
            cost=cost,
            block_choices=tuple(self._interned.setdefault(c.choices, c.choices) for c in choices),
            totals=StageTotals(
                microbatch_seconds=float(sums[0]),
                iteration_seconds=float(sums[1]),
                weight_bytes=float(sums[2]),
                activation_bytes=float(sums[3]) + self.constant_bytes(*layers),
                workspace_bytes=self._workspace(*layers, [choice.output_bytes for choice in choices]),
                paced_seconds=paced_seconds(
                    self.stage_of(*layers),
                    self.cutter.model,
                    PassSeconds(forward=float(sums[4]), backward=float(sums[0] - sums[4])),
                    PassSeconds(forward=float(sums[5]), backward=float(sums[6])),
                ),
            ),
        )

    def constant_bytes(self, first: int, last: int) -> int:
        """Bytes of the constants that a range holds for each microbatch; they are replicated."""
        tensors = self.chain.layered.graph.tensors
        return sum(tensors[t].bytes for t in self._held_constants(first, last))

    def _composed(
        self, layers: Range, best: BestStates, price: int, states: Sequence[State] | None
    ) -> ComposedChoice | None:
        """The choice at one price, from the states of its blocks."""
        if states is None:
            return None
        choices = [table.choice(price, state) for table, state in zip(best.tables, states, strict=True)]
        return self.joined(layers, float(best.costs[price]), choices)

    def _held_constants(self, first: int, last: int) -> set[int]:
        stage = self.stage_of(first, last)
        return set(stage.sources) & set(stage.held) & self.chain.constants

    def _least_bytes(self, tensor: int) -> float:
        """Bytes of a tensor on one device, sharded as far as it can be."""
        model, whole = self.cutter.model, self.chain.layered.graph.tensors[tensor]
        specs = legal_specs(whole.shape, model.mesh.shape, partial=False)
        return whole.bytes * min(local_share(spec, model.mesh.shape) for spec in specs)

    def _workspace(self, first: int, last: int, local_bytes: Sequence[Floats]) -> float:
        """Workspace of a range whose operators' outputs have these sizes, one array a block."""
        stage = self.stage_of(first, last)
        starts, ends, outputs = self.chain.workspace(stage)
        reserved = self.cutter.model.device.reserved_bytes
        return peak_bytes(starts, ends, np.concatenate(local_bytes)[outputs]) + reserved


@dataclass(frozen=True, slots=True, eq=False)
class _OrderedTables:
    """The tables of a range in the order in which it is extended, from one of its ends to the other."""

    tables: BlockTables
    parts: tuple[BlockPart, ...]
    """In that order."""
    direction: int

    def table(self, i: int) -> BlockTable | None:
        """The table of the i-th block."""
        previous = self.parts[i - 1] if i else None
        following = self.parts[i + 1] if i + 1 < len(self.parts) else None
        before, after = (previous, following) if self.direction > 0 else (following, previous)
        return self.tables.table(before, self.parts[i], after)


def _block_states(best: BestStates, price: int) -> list[State]:
    """The state of every block at one price."""
    separators = best.states[price].tolist()
    shared = int(best.shared_states[price])
    return [
        (shared if table.block.shared else 0, left, right)
        for table, (left, right) in zip(best.tables, pairwise(separators), strict=True)
    ]


def whole_choice(chain: Chain, problem: StageProblem, block_choices: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The choice of every node of a stage, from `ComposedChoice.block_choices`."""
    owner = chain.owners(problem)
    remaining = iter(c for choices in block_choices for c in choices)
    whole = [0] * len(owner)
    for v in sorted(range(len(owner)), key=lambda v: (owner[v], v)):
        whole[v] = replicated_strategy(problem, v) if owner[v] == CONSTANT else next(remaining)
    return tuple(whole)
