"""The least costs of all ranges of layers, exactly, from one contraction of every distinct layer.

With S_k the separator between layers k and k + 1 (`pieces`), and minima over everything inside a layer,

    A_i(S_i)              layer i that begins a stage        T_k(S_(k−1), S_k)    layer k inside one
    Z_j(S_(j−1))          layer j that ends a stage

the least cost of layers i..j is a product in (min, +):  A_i ⊗ T_(i+1) ⊗ … ⊗ T_(j−1) ⊗ Z_j.  L layers take at most 4 L
contractions, equal ones a single one, in place of L² / 2 solves. Layers that are too wide to contract, and ranges that
are no chains, are left out: they are solved by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from alpa_explore.cost.memory import peak_bytes
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.chain import CONSTANT, Chain
from alpa_explore.intra_op.contract import LIMITS, Contraction, contract
from alpa_explore.intra_op.factor_graph import Contradiction, Ints
from alpa_explore.intra_op.liveness import workspace_intervals
from alpa_explore.intra_op.pieces import Piece, Pieces, replicated_strategy
from alpa_explore.intra_op.problem import Floats
from alpa_explore.intra_op.stage_graph import StageGraph
from alpa_explore.intra_op.stage_problem import StageProblem, StageTotals
from alpa_explore.sharding.spec import legal_specs, local_share

Range = tuple[int, int]
"""(first, last) layer, both included."""

JOINS_A_RANGE = 4e7
"""Joined entries for each range that is asked for, which a layer may take to contract: about what it takes to solve one
range by itself."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Composed:
    """A best choice of one range: the choices of the nodes that each layer owns (`whole_choice` joins them)."""

    cost: float
    layers: tuple[tuple[int, ...], ...]
    totals: StageTotals


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Filled:
    """The part of a layer in a choice."""

    own: tuple[int, ...]
    totals: StageTotals
    local_bytes: Floats


class Composer:
    """Composes the ranges of one chain on one mesh, at any price. Keeps the pieces and what does not depend on it."""

    def __init__(self, chain: Chain, stage_of: Callable[[int, int], StageGraph], model: CostModel) -> None:
        self.chain, self.stage_of = chain, stage_of
        self.pieces = Pieces(chain=chain, stage_of=stage_of, model=model)
        self._workspaces: dict[str, tuple[Ints, Ints, Ints]] = {}

    def solve(
        self, ranges: Collection[Range], *, inverse_b: float, memory_price: float, held: int
    ) -> dict[Range, Composed | None]:
        """A best choice of every range that can be composed; None where no choice is legal.

        It has the least cost by `StageProblem.at` with the same prices, where constants are replicated and what they
        hold is free. Nothing is found where a layer inside a range is too wide: the others would be few.
        """
        chains = [r for r in ranges if self.chain.holds(*r)]
        tables = _Tables(self.pieces, inverse_b, memory_price, held, JOINS_A_RANGE * len(chains))
        inside = sorted({k for first, last in chains for k in range(first + 1, last)})
        found: dict[Range, Composed | None] = {}
        if any(tables.of(k, before=True, after=True) is None for k in inside):
            return found
        for first in sorted({first for first, _ in chains}):
            self._from(first, {last for start, last in chains if start == first}, tables, found)
        return found

    def least_peaks(self, first: int, last: int, most_held: int) -> tuple[float, ...] | None:
        """What every choice of a range holds at least beside 1, 2, … microbatches; None where it is no chain."""
        if not self.chain.holds(first, last):
            return None
        pieces = [self.pieces.piece(k, before=k > first, after=k < last) for k in range(first, last + 1)]
        nodes = [p.problem.nodes[v] for p in pieces if p is not None for v in p.own]
        if None in pieces:
            return None
        workspace = self._peak(first, last, [p.least_bytes() for p in pieces if p is not None])
        constants = sum(self._least_bytes(t) for t in self._held_constants(first, last))
        return tuple(
            sum(float((n.weight_bytes + held * n.activation_bytes).min()) for n in nodes) + held * constants + workspace
            for held in range(1, most_held + 1)
        )

    def size(self, first: int, last: int) -> tuple[int, int]:
        """Variables and constraints of Eq. 1 for a composed range, those of its constants left out."""
        pieces = [self.pieces.piece(k, before=k > first, after=k < last) for k in range(first, last + 1)]
        return (
            sum(p.variables for p in pieces if p is not None), sum(p.constraints for p in pieces if p is not None)
        )  # fmt: skip

    def _from(self, first: int, ends: Collection[int], tables: _Tables, found: dict[Range, Composed | None]) -> None:
        """All ranges that begin with layer `first`, one layer more at a time."""
        if first in ends and (alone := tables.of(first, before=False, after=False)) is not None:
            found[first, first] = self._composed(first, (alone,), (0, 0))
        if max(ends) == first or (opened := tables.of(first, before=False, after=True)) is None:
            return
        reached, parts, back = opened.table[0], [opened], list[Ints]()
        for last in range(first + 1, max(ends) + 1):
            if last in ends and (closed := tables.of(last, before=True, after=False)) is not None:
                states = [int((reached + closed.table[:, 0]).argmin())]
                for arrows in reversed(back):
                    states.append(int(arrows[states[-1]]))
                found[first, last] = self._composed(first, (*parts, closed), (0, *reversed(states), 0))
            if last == max(ends) or (through := tables.of(last, before=True, after=True)) is None:
                return
            total = reached[:, None] + through.table
            back.append(total.argmin(axis=0))
            reached = total.min(axis=0)
            parts.append(through)

    def _composed(self, first: int, parts: Sequence[_Table], path: Sequence[int]) -> Composed | None:
        """The choice with state path[i] at the left and path[i + 1] at the right of the i-th layer."""
        costs = [float(part.table[path[i], path[i + 1]]) for i, part in enumerate(parts)]
        if sum(costs) == np.inf:
            return None
        filled = [part.fill(path[i], path[i + 1]) for i, part in enumerate(parts)]
        last = first + len(parts) - 1
        tensors = self.chain.layered.graph.tensors
        constants = sum(tensors[t].bytes for t in self._held_constants(first, last))
        return Composed(
            cost=sum(costs),
            layers=tuple(f.own for f in filled),
            totals=StageTotals(
                microbatch_seconds=sum(f.totals.microbatch_seconds for f in filled),
                iteration_seconds=sum(f.totals.iteration_seconds for f in filled),
                weight_bytes=sum(f.totals.weight_bytes for f in filled),
                activation_bytes=sum(f.totals.activation_bytes for f in filled) + constants,
                workspace_bytes=self._peak(first, last, [f.local_bytes for f in filled]),
            ),
        )

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
        if stage.structure_key not in self._workspaces:
            self._workspaces[stage.structure_key] = _workspace(stage)
        starts, ends, outputs = self._workspaces[stage.structure_key]
        return peak_bytes(starts, ends, np.concatenate(local_bytes)[outputs])


def whole_choice(chain: Chain, problem: StageProblem, layers: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The choice of every node of a stage, from those of `Composed.layers`."""
    todo = {problem.stage.first + i: iter(own) for i, own in enumerate(layers)}
    return tuple(
        replicated_strategy(problem, v) if k == CONSTANT else next(todo[k]) for v, k in enumerate(chain.owners(problem))
    )


def _workspace(stage: StageGraph) -> tuple[Ints, Ints, Ints]:
    """Start, end, and place among the outputs of all operators, layer after layer, of what lives for a while."""
    layered = stage.layered
    order = sorted(stage.operators, key=lambda o: (layered.layer_of[o], o))
    starts = accumulate((len(layered.graph.operators[o].outputs) for o in order), initial=0)
    place = {
        tensor: start + i
        for o, start in zip(order, starts, strict=False)
        for i, tensor in enumerate(layered.graph.operators[o].outputs)
    }
    intervals = workspace_intervals(stage)
    mine = [i for i, tensor in enumerate(intervals.tensors) if tensor in place]
    return (
        intervals.starts[mine], intervals.ends[mine],
        np.array([place[intervals.tensors[i]] for i in mine], dtype=np.int64),
    )  # fmt: skip


class _Table:
    """A piece at some prices: its least cost for every state of the separators, [left, right]."""

    def __init__(self, piece: Piece, contraction: Contraction | None) -> None:
        self.piece, self.contraction = piece, contraction
        self.left, self.right = _states(piece, piece.left), _states(piece, piece.right)
        self.keep = tuple(dict.fromkeys((*piece.left, *piece.right)))
        self.table: Floats = np.full((self.left.shape[1], self.right.shape[1]), np.inf)
        self._filled: dict[tuple[int, int], _Filled] = {}
        if contraction is not None:
            rows, columns = (
                dict(zip(piece.left, self.left, strict=True)),
                dict(zip(piece.right, self.right, strict=True)),
            )
            agree = np.ones(self.table.shape, dtype=np.bool_)
            for v in rows.keys() & columns.keys():
                agree &= rows[v][:, None] == columns[v][None, :]
            at = tuple(rows[v][:, None] if v in rows else columns[v][None, :] for v in self.keep)
            self.table = np.where(agree, contraction.table[at], np.inf)

    def fill(self, left: int, right: int) -> _Filled:
        """The best choice of the layer between two states."""
        if (left, right) not in self._filled:
            assert self.contraction is not None, "a state of finite cost"
            at = dict(zip(self.piece.left, self.left[:, left], strict=True))
            at.update(zip(self.piece.right, self.right[:, right], strict=True))
            choices = self.contraction.complete(tuple(int(at[v]) for v in self.keep))
            self._filled[left, right] = _Filled(
                own=tuple(choices[v] for v in self.piece.own),
                totals=self.piece.problem.totals(choices),
                local_bytes=self.piece.local_bytes(choices),
            )
        return self._filled[left, right]


def _states(piece: Piece, nodes: Sequence[int]) -> Ints:
    """The strategy of each of `nodes` in every state of a separator, shape [nodes, states]."""
    sizes = [len(piece.problem.nodes[v].microbatch_seconds) for v in nodes]
    return np.array(np.unravel_index(np.arange(int(np.prod(sizes))), sizes or (1,)), dtype=np.int64)[: len(nodes)]


class _Tables:
    """Contracts pieces at one price, those with equal costs once."""

    def __init__(
        self, pieces: Pieces, inverse_b: float, memory_price: float, held: int, joined_entries: float
    ) -> None:  # fmt: skip
        self.pieces, self.prices = pieces, (inverse_b, memory_price, held)
        self.limits = replace(LIMITS, joined_entries=joined_entries)
        self._tables: dict[int, _Table | None] = {}
        self._contractions: dict[object, Contraction | None] = {}

    def of(self, layer: int, *, before: bool, after: bool) -> _Table | None:
        """The table of a layer; None where it is too wide or no chain."""
        piece = self.pieces.piece(layer, before=before, after=after)
        if piece is None:
            return None
        if id(piece) not in self._tables:
            self._tables[id(piece)] = self._table(piece)
        return self._tables[id(piece)]

    def _table(self, piece: Piece) -> _Table | None:
        inverse_b, memory_price, held = self.prices
        problem = piece.problem.at(inverse_b=inverse_b, memory_price=memory_price, microbatches_held=held)
        keep = tuple(dict.fromkeys((*piece.left, *piece.right)))
        key = (problem.content_key, keep)
        if key not in self._contractions:
            try:
                self._contractions[key] = contract(problem, keep, self.limits)
            except Contradiction:
                return _Table(piece, None)
        found = self._contractions[key]
        return None if found is None else _Table(piece, found)
