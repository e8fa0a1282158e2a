"""The least costs of all ranges of layers, exactly, from one contraction of every distinct piece.

Layers are chains of pieces (`pieces`). With S_k the separator between pieces k and k + 1, and minima over everything
inside a piece,

    A_i(S_i)              piece i that begins a stage        T_k(S_(k−1), S_k)    piece k inside one
    Z_j(S_(j−1))          piece j that ends a stage

the least cost of a range is a product in (min, +):  A_i ⊗ T_(i+1) ⊗ … ⊗ T_(j−1) ⊗ Z_j, worked out from either end as a
vector times tables, in place of L² / 2 solves. Equal pieces are contracted once. Layers that are too wide to contract,
and ranges that are no chains, are left out: they are solved by themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from alpa_explore.cost.memory import peak_bytes
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op import contract_kernels
from alpa_explore.intra_op.chain import CONSTANT, Chain
from alpa_explore.intra_op.contract import LIMITS, Contraction, contract
from alpa_explore.intra_op.factor_graph import Ints
from alpa_explore.intra_op.pieces import Piece, Pieces, Price, replicated_strategy
from alpa_explore.intra_op.problem import Floats
from alpa_explore.intra_op.stage_graph import StageGraph
from alpa_explore.intra_op.stage_problem import StageProblem, StageTotals
from alpa_explore.sharding.spec import legal_specs, local_share

Range = tuple[int, int]
"""(first, last) layer, both included."""

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
        self.pieces = Pieces(chain=chain, stage_of=stage_of, model=model)
        self._choices: dict[tuple[int, ...], tuple[int, ...]] = {}

    def solve(self, ranges: Collection[Range], prices: Sequence[Price]) -> tuple[dict[Range, Composed | None], ...]:
        """For each price a best choice of every range that can be composed; None where no choice is legal.

        It has the least cost by `StageProblem.at` with the same price, where constants are replicated and what they
        hold is free. Nothing is found where a layer inside a range is too wide: the others would be few.
        """
        chains = [r for r in ranges if self.chain.holds(*r)]
        tables = _Tables(self.pieces, prices, JOINS_A_RANGE * len(chains))
        inside = sorted({k for first, last in chains for k in range(first + 1, last)})
        if any(tables.of(k, before=True, after=True) is None for k in inside):
            return tuple({} for _ in prices)
        paths: dict[Range, _Paths] = {}
        # Ranges that begin with the same layer share their beginning, as those that end with the same share their end.
        firsts, lasts = Counter(first for first, _ in chains), Counter(last for _, last in chains)
        for first in firsts:
            self._sweep(first, {r[1] for r in chains if r[0] == first and lasts[r[1]] <= firsts[first]}, tables, paths)
        for last in lasts:
            self._sweep(last, {r[0] for r in chains if r[1] == last and lasts[last] > firsts[r[0]]}, tables, paths)
        for found in paths.values():
            for i, part in enumerate(found.parts):
                part.want(np.flatnonzero(found.costs < np.inf), found.states[:, i], found.states[:, i + 1])
        return tuple(
            {r: self._composed(r, found, p) if found.costs[p] < np.inf else None for r, found in paths.items()}
            for p in range(len(prices))
        )

    def least_peaks(self, first: int, last: int, counts: Iterable[int]) -> tuple[float, ...] | None:
        """What every choice of a range holds at least beside so many microbatches; None where it is no chain."""
        whole = self._pieces(first, last)
        if whole is None:
            return None
        workspace = self._peak(first, last, [p.least_bytes for p in whole])
        constants = sum(self._least_bytes(t) for t in self._held_constants(first, last))
        return tuple(sum(p.least_held(held) for p in whole) + held * constants + workspace for held in counts)

    def size(self, first: int, last: int) -> tuple[int, int]:
        """Variables and constraints of Eq. 1 for a range that is a chain, those of its constants left out."""
        whole = self._pieces(first, last) or ()
        return sum(p.variables for p in whole), sum(p.constraints for p in whole)

    def _pieces(self, first: int, last: int) -> list[Piece] | None:
        if not self.chain.holds(first, last):
            return None
        found: list[Piece] = []
        for k in range(first, last + 1):
            pieces = self.pieces.of(k, before=k > first, after=k < last)
            if pieces is None:
                return None
            found += pieces
        return found

    def _sweep(self, start: int, ends: Collection[int], tables: _Tables, paths: dict[Range, _Paths]) -> None:
        """All ranges with one end at layer `start` and the other in `ends`, one layer more at a time.

        Those to the left of `start` are found from right to left, by the same steps on transposed tables.
        """
        for step in (1, -1):
            farthest = max((end for end in ends if end * step > start * step), key=lambda end: end * step, default=None)
            if step == 1 and start in ends and (alone := tables.of(start, before=False, after=False)) is not None:
                paths[start, start] = _Way(len(tables.prices), step).to(alone).paths()
            if farthest is None or (opened := tables.of(start, before=step < 0, after=step > 0)) is None:
                continue
            way = _Way(len(tables.prices), step).to(opened)
            for layer in range(start + step, farthest + step, step):
                if layer in ends and (closed := tables.of(layer, before=step > 0, after=step < 0)) is not None:
                    paths[min(start, layer), max(start, layer)] = way.to(closed).paths()
                if layer == farthest or (through := tables.of(layer, before=True, after=True)) is None:
                    break
                way = way.to(through)

    def _composed(self, layers: Range, found: _Paths, price: int) -> Composed:
        """The choice along the path of one price."""
        filled = [
            part.filled(price, int(found.states[price, i]), int(found.states[price, i + 1]))
            for i, part in enumerate(found.parts)
        ]
        tensors = self.chain.layered.graph.tensors
        sums = np.sum([totals for _, totals, _ in filled], axis=0)
        return Composed(
            cost=float(found.costs[price]),
            pieces=tuple(self._choices.setdefault(own, own) for own, _, _ in filled),
            totals=StageTotals(
                microbatch_seconds=float(sums[0]), iteration_seconds=float(sums[1]), weight_bytes=float(sums[2]),
                activation_bytes=float(sums[3]) + sum(tensors[t].bytes for t in self._held_constants(*layers)),
                workspace_bytes=self._peak(*layers, [sizes for _, _, sizes in filled]),
            ),
        )  # fmt: skip

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


def whole_choice(chain: Chain, problem: StageProblem, pieces: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The choice of every node of a stage, from those of `Composed.pieces`."""
    places = chain.places(problem)
    todo = iter(c for own in pieces for c in own)
    found = [0] * len(places)
    for v in sorted(range(len(places)), key=lambda v: (places[v], v)):
        found[v] = replicated_strategy(problem, v) if places[v][0] == CONSTANT else next(todo)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Paths:
    """The best way through the states of the separators of one range, for each price."""

    parts: tuple[_Table, ...]
    costs: Floats
    """[prices]"""
    states: Ints
    """[prices, parts + 1]: at the left and the right of every part."""


class _Way:
    """The least cost from one end of a stage to every state of a separator, and the way back for each price."""

    def __init__(self, prices: int, step: int) -> None:
        self.step = step
        """1 from left to right, −1 from right to left."""
        self.reached: Floats = np.zeros((prices, 1))
        self.parts: tuple[_Table, ...] = ()
        self.arrows: tuple[Ints, ...] = ()

    def to(self, layer: Sequence[_Table]) -> _Way:
        """One layer more."""
        longer = _Way(len(self.reached), self.step)
        longer.reached, longer.parts, arrows = self.reached, (*self.parts, *layer[:: self.step]), list(self.arrows)
        for part in layer[:: self.step]:
            table = part.table if self.step > 0 else part.turned
            reached = np.empty((len(table), table.shape[2]))
            arrows.append(np.empty(reached.shape, dtype=np.int64))
            contract_kernels.advance(longer.reached, table, reached, arrows[-1])
            longer.reached = reached
        longer.arrows = tuple(arrows)
        return longer

    def paths(self) -> _Paths:
        """Of the range that ends here."""
        each = np.arange(len(self.reached))
        states = [np.zeros_like(each)]
        for arrows in reversed(self.arrows):
            states.append(arrows[each, states[-1]])
        order = states[:: -self.step]
        return _Paths(parts=self.parts[:: self.step], costs=self.reached[:, 0], states=np.stack(order, axis=1))


Filled = tuple[tuple[int, ...], Floats, Floats]
"""Choices of the piece's own nodes; seconds and bytes as Piece.totals; bytes of every output."""


class _Table:
    """A piece at some prices: its least cost for every state of the separators, [prices, left, right]."""

    def __init__(self, piece: Piece, contraction: Contraction, prices: int) -> None:
        self.piece, self.contraction = piece, contraction
        self.left, self.right = _states(piece, piece.left), _states(piece, piece.right)
        rows = dict(zip(piece.left, self.left, strict=True))
        columns = dict(zip(piece.right, self.right, strict=True))
        agree = np.ones((self.left.shape[1], self.right.shape[1]), dtype=np.bool_)
        for v in rows.keys() & columns.keys():
            agree &= rows[v][:, None] == columns[v][None, :]
        at = tuple(rows[v][:, None] if v in rows else columns[v][None, :] for v in contraction.keep)
        every = np.arange(len(contraction.table))[:, None, None]
        table = np.where(agree, contraction.table[(every, *at)], np.inf)
        self.table: Floats = np.ascontiguousarray(np.broadcast_to(table, (prices, *agree.shape)))
        self._wanted: dict[tuple[int, int, int], int] = {}
        self._filled: list[Filled] = []

    @cached_property
    def turned(self) -> Floats:
        """[prices, right, left]"""
        return np.ascontiguousarray(self.table.transpose(0, 2, 1))

    def want(self, prices: Ints, left: Ints, right: Ints) -> None:
        """Say that `filled` will be asked for these prices, with left[price] and right[price]."""
        for p in prices.tolist():
            self._wanted.setdefault((p, int(left[p]), int(right[p])), len(self._wanted))

    def filled(self, price: int, left: int, right: int) -> Filled:
        """The best choice of the piece between two states; all that are wanted are found at once."""
        if not self._filled:
            wanted = np.array(list(self._wanted))
            at = dict(zip(self.piece.left, self.left[:, wanted[:, 1]], strict=True))
            at.update(zip(self.piece.right, self.right[:, wanted[:, 2]], strict=True))
            kept = np.array([at[v] for v in self.contraction.keep], dtype=np.int64).reshape(-1, len(wanted)).T
            choices = self.contraction.complete(wanted[:, 0], kept)
            totals, sizes = self.piece.totals(choices)
            own = choices[:, list(self.piece.own)].tolist()
            self._filled = [(tuple(own[i]), totals[i], sizes[i]) for i in range(len(wanted))]
        return self._filled[self._wanted[price, left, right]]


def _states(piece: Piece, nodes: Sequence[int]) -> Ints:
    """The strategy of each of `nodes` in every state of a separator, shape [nodes, states]."""
    sizes = [len(piece.problem.nodes[v].microbatch_seconds) for v in nodes]
    return np.array(np.unravel_index(np.arange(int(np.prod(sizes))), sizes or (1,)), dtype=np.int64)[: len(nodes)]


class _Tables:
    """Contracts pieces at some prices, each once."""

    def __init__(self, pieces: Pieces, prices: Sequence[Price], joined_entries: float) -> None:
        self.pieces, self.prices = pieces, prices
        self.limits = replace(LIMITS, joined_entries=joined_entries)
        self._tables: dict[Piece, _Table | None] = {}

    def of(self, layer: int, *, before: bool, after: bool) -> tuple[_Table, ...] | None:
        """The tables of a layer, from left to right; None where it is too wide or no chain."""
        pieces = self.pieces.of(layer, before=before, after=after)
        if pieces is None:
            return None
        tables = [self._table(piece) for piece in pieces]
        whole = tuple(table for table in tables if table is not None)
        return whole if len(whole) == len(tables) else None

    def _table(self, piece: Piece) -> _Table | None:
        if piece not in self._tables:
            keep = tuple(dict.fromkeys((*piece.left, *piece.right)))
            found = contract(piece.at(self.prices), keep, self.limits)
            self._tables[piece] = None if found is None else _Table(piece, found, len(self.prices))
        return self._tables[piece]
