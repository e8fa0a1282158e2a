"""The least costs of all ranges of layers, exactly, from one contraction of every distinct piece.

Blocks are pieces of a chain (`pieces`). With S_k the separator between pieces k and k + 1, and minima over
everything inside a piece,

    A_i(S_i)              piece i that begins a stage        T_k(S_(k−1), S_k)    piece k inside one
    Z_j(S_(j−1))          piece j that ends a stage

the least cost of a range is a product in (min, +):  A_i ⊗ T_(i+1) ⊗ … ⊗ T_(j−1) ⊗ Z_j, worked out from either end as a
vector times tables, in place of L² / 2 solves (`ways`). Equal pieces are contracted once. Ranges that would be chains
but for a tied weight take its states along. Layers that are too wide to contract, and ranges that are no chains in
other ways, are left out: they are solved by themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from alpa_explore.cost.memory import peak_bytes
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.block_tables import Filled, PieceTable, PieceTables, State
from alpa_explore.intra_op.composition.chain import CONSTANT, Chain, Run
from alpa_explore.intra_op.composition.cut_blocks import Pieces, Range, replicated_strategy
from alpa_explore.intra_op.composition.min_plus_products import Paths, Way, tied_paths
from alpa_explore.intra_op.stage.stage_graph import StageGraph
from alpa_explore.intra_op.stage.stage_problem import StageProblem, StageTotals
from alpa_explore.numerics.arrays import Floats
from alpa_explore.sharding.spec import legal_specs, local_share

JOINS_A_RANGE = 1.5e8
"""Joined entries for each range that is asked for, which a layer may take to contract: about what it takes to solve one
range by itself."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Composed:
    """A best choice of one range: the choices of the nodes that each piece owns (`whole_choice` joins them)."""

    cost: float
    pieces: tuple[tuple[int, ...], ...]
    totals: StageTotals


class Composer:
    """Composes the ranges of one chain on one mesh, at any prices. Keeps the pieces."""

    def __init__(self, chain: Chain, stage_of: Callable[[int, int], StageGraph], model: CostModel) -> None:
        self.chain, self.stage_of = chain, stage_of
        self.pieces = Pieces(chain=chain, model=model)
        self._choices: dict[tuple[int, ...], tuple[int, ...]] = {}

    def tables(self, prices: Sequence[Price], ranges: int = 1) -> PieceTables:
        """To be asked for so many ranges."""
        return PieceTables(self.pieces, prices, JOINS_A_RANGE * ranges)

    def solve(
        self,
        ranges: Collection[Range],
        prices: Sequence[Price],
        meant: Sequence[Collection[Range]] = (),
        tables: PieceTables | None = None,
    ) -> tuple[dict[Range, Composed | None], ...]:
        """For each price a best choice of every range that can be composed (of those it is `meant` for, where that is
        told); None where no choice is legal.

        It has the least cost by `StageProblem.at` with the same price, where constants are replicated and what they
        hold is free. Nothing is found where a layer inside a range is too wide: the others would be few. `tables` at
        these prices, where given, keep what is contracted for other ranges.
        """
        chains = [r for r in ranges if self.chain.holds(*r)]
        tables = tables or self.tables(prices, len(ranges))
        runs = [self.chain.runs(*r) for r in chains]
        inside = sorted({near for here in runs for near in zip(here, here[1:], here[2:], strict=False)})
        if any(tables.block(*near) is None for near in inside):
            return tuple({} for _ in prices)
        paths: dict[Range, Paths] = {}
        # Ranges that begin with the same layer share their beginning, as those that end with the same share their end.
        firsts, lasts = Counter(first for first, _ in chains), Counter(last for _, last in chains)
        for first in firsts:
            self._sweep(first, {r[1] for r in chains if r[0] == first and lasts[r[1]] <= firsts[first]}, tables, paths)
        for last in lasts:
            self._sweep(last, {r[0] for r in chains if r[1] == last and lasts[last] > firsts[r[0]]}, tables, paths)
        for r in ranges:
            if not self.chain.holds(*r) and (parts := tables.of(self.pieces.of(*r))) is not None:
                paths[r] = tied_paths(parts)
        # Of every range and price that has a choice, the state of every part; all are asked for before one is filled.
        states = {
            (r, p): _states_of(found, p)
            for r, found in paths.items()
            for p in range(len(prices))
            if found.costs[p] < np.inf and (not meant or r in meant[p])
        }
        for (r, p), of_parts in states.items():
            for part, state in zip(paths[r].parts, of_parts, strict=True):
                part.want(p, state)
        return tuple(
            {
                r: self._composed(r, found, p, states.get((r, p)))
                for r, found in paths.items()
                if not meant or r in meant[p]
            }
            for p in range(len(prices))
        )

    def least_peaks(self, first: int, last: int, counts: Iterable[int]) -> tuple[float, ...] | None:
        """What every choice of a range holds at least beside so many microbatches; None where it is no chain."""
        whole = self.pieces.of(first, last)
        if whole is None:
            return None
        workspace, constants = self.least_workspace(first, last), self.least_constant_bytes(first, last)
        return tuple(sum(p.least_held(held) for p in whole) + held * constants + workspace for held in counts)

    def least_constant_bytes(self, first: int, last: int) -> float:
        """What the constants that a range holds take at least beside each microbatch, however they are divided."""
        return sum(self._least_bytes(t) for t in self._held_constants(first, last))

    def least_workspace(self, first: int, last: int) -> float:
        """Bytes that no choice of a range that has pieces goes below at its peak."""
        return self._peak(first, last, [p.least_bytes for p in self.pieces.of(first, last) or ()])

    def size(self, first: int, last: int) -> tuple[int, int]:
        """Variables and constraints of Eq. 1 for a range that is a chain, those of its constants left out."""
        whole = self.pieces.of(first, last) or ()
        return sum(p.variables for p in whole), sum(p.constraints for p in whole)

    def _sweep(self, start: int, ends: Collection[int], tables: PieceTables, paths: dict[Range, Paths]) -> None:
        """All ranges with one end at layer `start` and the other in `ends`, one block more at a time.

        Those to the left of `start` are found from right to left, by the same steps on transposed tables.
        """
        # The single layer `start` is found to the right.
        for step, there in ((1, [k for k in ends if k >= start]), (-1, [k for k in ends if k < start])):
            # ways[i] leads through i blocks, and on to a whole one.
            ways = [Way(len(tables.prices), step)]
            for end in sorted(there, key=lambda k: k * step):
                along = _Along(tables, self.chain.runs(min(start, end), max(start, end))[::step], step)
                blocks = len(along.runs)
                # The last block may be a part of one: the block before it sees that, those before do not.
                while len(ways) < blocks - 1 and (through := along.table(len(ways) - 1)) is not None:
                    ways.append(ways[-1].to(through))
                if len(ways) < blocks - 1:
                    break
                closing = [along.table(i) for i in range(max(blocks - 2, 0), blocks)]
                way = ways[max(blocks - 2, 0)]
                for part in closing:
                    way = way if part is None else way.to(part)
                if None not in closing:
                    paths[min(start, end), max(start, end)] = way.paths()

    def joined(self, layers: Range, cost: float, filled: Sequence[Filled]) -> Composed:
        """The choices of the pieces of a range as one."""
        sums = np.sum([totals for _, totals, _ in filled], axis=0)
        return Composed(
            cost=cost,
            pieces=tuple(self._choices.setdefault(own, own) for own, _, _ in filled),
            totals=StageTotals(
                microbatch_seconds=float(sums[0]),
                iteration_seconds=float(sums[1]),
                weight_bytes=float(sums[2]),
                activation_bytes=float(sums[3]) + self.constant_bytes(*layers),
                workspace_bytes=self._peak(*layers, [sizes for _, _, sizes in filled]),
            ),
        )

    def constant_bytes(self, first: int, last: int) -> int:
        """What the constants that a range holds take beside each microbatch, replicated as they are."""
        tensors = self.chain.layered.graph.tensors
        return sum(tensors[t].bytes for t in self._held_constants(first, last))

    def _composed(self, layers: Range, found: Paths, price: int, states: Sequence[State] | None) -> Composed | None:
        """The choice along the path of one price."""
        if states is None:
            return None
        filled = [part.filled(price, state) for part, state in zip(found.parts, states, strict=True)]
        return self.joined(layers, float(found.costs[price]), filled)

    def _held_constants(self, first: int, last: int) -> set[int]:
        stage = self.stage_of(first, last)
        return set(stage.sources) & set(stage.held) & self.chain.constants

    def _least_bytes(self, tensor: int) -> float:
        """Bytes of a tensor on one device, divided as far as it can be."""
        model, whole = self.pieces.model, self.chain.layered.graph.tensors[tensor]
        specs = legal_specs(whole.shape, model.mesh.shape, partial=False)
        return whole.bytes * min(local_share(spec, model.mesh.shape) for spec in specs)

    def _peak(self, first: int, last: int, local_bytes: Sequence[Floats]) -> float:
        """Workspace of a range whose operators' outputs have these sizes, one array a layer."""
        stage = self.stage_of(first, last)
        starts, ends, outputs = self.chain.workspace(stage)
        return peak_bytes(starts, ends, np.concatenate(local_bytes)[outputs])


@dataclass(frozen=True, slots=True, eq=False)
class _Along:
    """The tables of a range on the way from one of its ends to the other."""

    tables: PieceTables
    runs: tuple[Run, ...]
    """In the order of the way."""
    step: int

    def table(self, i: int) -> PieceTable | None:
        """Of the i-th block on the way."""
        past = self.runs[i - 1] if i else None
        coming = self.runs[i + 1] if i + 1 < len(self.runs) else None
        before, after = (past, coming) if self.step > 0 else (coming, past)
        return self.tables.block(before, self.runs[i], after)


def _states_of(found: Paths, price: int) -> list[State]:
    """Of every part."""
    along = found.states[price].tolist()
    tie = int(found.ties[price])
    return [
        (tie if part.piece.ties else 0, left, right)
        for part, (left, right) in zip(found.parts, pairwise(along), strict=True)
    ]


def whole_choice(chain: Chain, problem: StageProblem, pieces: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The choice of every node of a stage, from those of `Composed.pieces`."""
    owner = chain.owners(problem)
    todo = iter(c for own in pieces for c in own)
    found = [0] * len(owner)
    for v in sorted(range(len(owner)), key=lambda v: (owner[v], v)):
        found[v] = replicated_strategy(problem, v) if owner[v] == CONSTANT else next(todo)
    return tuple(found)
