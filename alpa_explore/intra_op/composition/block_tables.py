"""Pieces contracted at some prices: their least costs over the states of their separators, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from alpa_explore.intra_op.composition.block_subproblem import Piece, Price
from alpa_explore.intra_op.composition.chain import Run
from alpa_explore.intra_op.composition.contract import LIMITS, Contraction, contract
from alpa_explore.intra_op.composition.cut_blocks import Pieces
from alpa_explore.numerics.arrays import Floats, Ints

Filled = tuple[tuple[int, ...], Floats, Floats]
"""Choices of the piece's own nodes; seconds and bytes as Piece.totals; bytes of every output."""
State = tuple[int, int, int]
"""Of the ties (0 where a piece has none), of the separator on the left, of that on the right."""


class PieceTable:
    """A piece at some prices: its least cost for every state, [prices, ties, left, right]; inf where none is legal."""

    def __init__(self, piece: Piece, contraction: Contraction) -> None:
        self.piece, self.contraction = piece, contraction
        sides = (piece.ties, piece.left, piece.right)
        self._states = [_states(piece, nodes) for nodes in sides]
        shape = tuple(states.shape[1] for states in self._states)
        table = contraction.table
        if len(contraction.keep) < sum(map(len, sides)):
            table = _repeated(table, contraction.keep, sides, self._states)
        self.tied: Floats = table.reshape(-1, *shape)
        self._wanted: dict[tuple[int, State], int] = {}
        self._filled: list[Filled] = []

    @property
    def table(self) -> Floats:
        """[prices, left, right] of a piece without ties."""
        assert self.tied.shape[1] == 1
        return self.tied[:, 0]

    def want(self, price: int, state: State) -> None:
        """Say that `filled` will be asked for this."""
        self._wanted.setdefault((price, state), len(self._wanted))

    def filled(self, price: int, state: State) -> Filled:
        """The best choice of the piece in a state; all that are wanted are found at once."""
        place = self._wanted[price, state]
        if place >= len(self._filled):
            new = list(self._wanted)[len(self._filled) :]
            prices, states = np.array([price for price, _ in new]), np.array([state for _, state in new])
            self._filled += self._fill(self._complete(prices, states))
        return self._filled[place]

    def fill(self, prices: Ints, left: Ints, right: Ints) -> list[Filled]:
        """The best choice of a piece without ties in each of some states."""
        return self._fill(self._complete(prices, np.column_stack([np.zeros_like(left), left, right])))

    def totals(self, prices: Ints, left: Ints, right: Ints) -> Floats:
        """Seconds and bytes as Piece.totals of the best choice in each of some states, [states, 4]."""
        return self.piece.totals(self._complete(prices, np.column_stack([np.zeros_like(left), left, right])))[0]

    def _complete(self, prices: Ints, states: Ints) -> Ints:
        """For each row of `states` [rows, (ties, left, right)] the best choice of all nodes, [rows, nodes]."""
        at: dict[int, Ints] = {}
        for axis, nodes in enumerate((self.piece.ties, self.piece.left, self.piece.right)):
            at.update(zip(nodes, self._states[axis][:, states[:, axis]], strict=True))
        kept = np.array([at[v] for v in self.contraction.keep], dtype=np.int64).reshape(-1, len(prices)).T
        return self.contraction.complete(prices, kept)

    def _fill(self, choices: Ints) -> list[Filled]:
        totals, sizes = self.piece.totals(choices)
        own = choices[:, list(self.piece.own)].tolist()
        return [(tuple(own[i]), totals[i], sizes[i]) for i in range(len(choices))]


class PieceTables:
    """Contracts pieces at some prices, each once."""

    def __init__(self, pieces: Pieces, prices: Sequence[Price], joined_entries: float) -> None:
        self.pieces, self.prices = pieces, prices
        self.limits = replace(LIMITS, joined_entries=joined_entries)
        self._tables: dict[Piece, PieceTable | None] = {}

    def block(self, before: Run | None, run: Run, after: Run | None) -> PieceTable | None:
        """The table of a piece; None where it is too wide."""
        piece = self.pieces.block(before, run, after)
        return None if piece is None else self._table(piece)

    def of(self, pieces: Sequence[Piece] | None) -> tuple[PieceTable, ...] | None:
        """The tables of pieces; None where one is too wide, and where there are no pieces."""
        tables = [self._table(piece) for piece in pieces or ()]
        whole = tuple(table for table in tables if table is not None)
        return whole if whole and len(whole) == len(tables) else None

    def _table(self, piece: Piece) -> PieceTable | None:
        if piece not in self._tables:
            keep = tuple(dict.fromkeys((*piece.ties, *piece.left, *piece.right)))
            found = contract(piece.at(self.prices), keep, self.limits)
            self._tables[piece] = None if found is None else PieceTable(piece, found)
        return self._tables[piece]


def _states(piece: Piece, nodes: Sequence[int]) -> Ints:
    """The strategy of each of `nodes` in every state of them all, shape [nodes, states]."""
    sizes = [len(piece.problem.nodes[v].microbatch_seconds) for v in nodes]
    return np.array(np.unravel_index(np.arange(int(np.prod(sizes))), sizes or (1,)), dtype=np.int64)[: len(nodes)]


def _repeated(table: Floats, keep: Sequence[int], sides: Sequence[Sequence[int]], states: Sequence[Ints]) -> Floats:
    """A table over `keep` where a node is on several sides: inf where the states of the sides do not agree on it."""
    at: dict[int, Ints] = {}
    agree = np.ones(tuple(s.shape[1] for s in states), dtype=np.bool_)
    for axis, (nodes, strategies) in enumerate(zip(sides, states, strict=True)):
        along = tuple(-1 if axis == i else 1 for i in range(len(states)))
        for v, strategy in zip(nodes, strategies, strict=True):
            agree &= strategy.reshape(along) == at.setdefault(v, strategy.reshape(along))
    every = np.arange(len(table)).reshape(-1, 1, 1, 1)
    return np.where(agree, table[(every, *(at[v] for v in keep))], np.inf)
