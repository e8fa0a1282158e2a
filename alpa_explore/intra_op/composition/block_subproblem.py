"""A block of a chain on a mesh as a problem of its own, and what it takes at any price for bytes and any B."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from alpa_explore.intra_op.composition.contract import Priced
from alpa_explore.intra_op.composition.contract_program import OWN, SAME, Form, Given
from alpa_explore.intra_op.reduction.tables import without_forbidden
from alpa_explore.intra_op.stage.stage_problem import Node, NodeKind, StageProblem
from alpa_explore.numerics.arrays import Flags, Floats, Ints


class Price(NamedTuple):
    """What `StageProblem.at` is asked for."""

    inverse_b: float
    memory_price: float
    microbatches_held: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """A block and its separators as a problem of their own; nodes of other pieces cost nothing here."""

    problem: StageProblem
    own: tuple[int, ...]
    """Nodes of the block, in their order in every stage that holds it (block by block where blocks are joined)."""
    left: tuple[int, ...]
    """Nodes of the separators; the piece may own some of them."""
    right: tuple[int, ...]
    ties: tuple[int, ...]
    """Nodes that pieces far from each other share, in the order that all of them have; none where it has no edge to
    them."""
    variables: int
    """Of Eq. 1, that the piece adds to a stage; `constraints` likewise."""
    constraints: int

    def at(self, prices: Sequence[Price]) -> Priced:
        """`StageProblem.at` of every price."""
        form, same, nodes, edges = self._forms
        inverse_b, memory, held = np.array(prices).T[:, :, None]
        paid = nodes[0] + inverse_b * nodes[1] + memory * (nodes[2] + held * nodes[3])
        return Priced(form=form, same=same, own=np.concatenate([paid, inverse_b * edges], axis=1))

    @cached_property
    def _forms(self) -> tuple[Form, Floats, Floats, Floats]:
        """The form of `at`, what it says of every price, and what it makes of each: of nodes that a price changes their
        four figures [4, entries], of edges that are paid in each iteration their seconds."""
        flat = self._flat
        charged = np.asarray(np.logical_or.reduceat(flat.nodes != 0, flat.node_starts, axis=1))
        changed = np.any(charged[1:], axis=0)
        fixed = np.any(charged, axis=0) & ~changed
        node_lengths, edge_lengths = flat.lengths()
        nodes_at, same, own = _placed(node_lengths, fixed, changed, 0, 0)
        edges_at, same, own = _placed(edge_lengths, ~flat.each_iteration, flat.each_iteration, same, own)
        form = Form(
            sizes=tuple(node_lengths.tolist()),
            edges=tuple(zip(flat.a.tolist(), flat.b.tolist(), strict=True)),
            nodes_given=tuple(nodes_at),
            edges_given=tuple(at for at in edges_at if at is not None),
            same=same,
            own=own,
        )
        seconds = flat.seconds
        always = [flat.nodes[0, fixed.repeat(node_lengths)], seconds[~flat.each_iteration.repeat(edge_lengths)]]
        return (
            form,
            without_forbidden(np.concatenate(always)),
            without_forbidden(flat.nodes[:, changed.repeat(node_lengths)]),
            without_forbidden(seconds[flat.each_iteration.repeat(edge_lengths)]),
        )

    @cached_property
    def least_bytes(self) -> Floats:
        """Bytes on one device of every output of every operator of the piece where each is as small as it can be."""
        return np.array([size.min() for _, size in self._outputs])

    def least_held(self, microbatches: int) -> float:
        """Bytes of weights and of the activations of so many microbatches that the piece holds at least."""
        if microbatches not in self._least_held:
            least = (float((weight + microbatches * activation).min()) for weight, activation in self._holding)
            self._least_held[microbatches] = sum(least)
        return self._least_held[microbatches]

    @cached_property
    def least_activation_bytes(self) -> float:
        """Of a microbatch, that the piece holds at least."""
        return sum(float(self.problem.nodes[v].activation_bytes.min()) for v in self.own)

    @cached_property
    def _holding(self) -> list[tuple[Floats, Floats]]:
        """Weight and activation bytes of the nodes of the block that hold any."""
        both = ((self.problem.nodes[v].weight_bytes, self.problem.nodes[v].activation_bytes) for v in self.own)
        return [(weight, activation) for weight, activation in both if weight.any() or activation.any()]

    @cached_property
    def _least_held(self) -> dict[int, float]:
        return {}

    @cached_property
    def content(self) -> tuple[object, ...]:
        """Equal for pieces that are equal in all that is asked of them."""
        digest = sha256()
        for array in self._flat:
            digest.update(repr(array.shape).encode() + array.tobytes())
        return digest.hexdigest(), self.own, self.left, self.right, self.ties

    def totals(self, choices: Ints) -> tuple[Floats, Floats]:
        """Of each row of `choices` [rows, nodes]: microbatch and iteration seconds, weight and activation bytes
        [rows, 4], and the bytes on one device of every output of every operator [rows, outputs]."""
        flat = self._flat
        found = flat.nodes[:, flat.node_starts + choices].sum(axis=2).T
        paid = flat.seconds[flat.edge_starts + choices[:, flat.a] * flat.widths + choices[:, flat.b]]
        found[:, 0] += paid[:, ~flat.each_iteration].sum(axis=1)
        found[:, 1] += paid[:, flat.each_iteration].sum(axis=1)
        return found, flat.sizes[flat.output_starts + choices[:, flat.makers]]

    @cached_property
    def _outputs(self) -> list[tuple[int, Floats]]:
        nodes = self.problem.nodes
        return [
            (v, size)
            for v in self.own
            if nodes[v].kind is NodeKind.OPERATOR and (priced := nodes[v].priced) is not None
            for size in priced.output_bytes
        ]

    @cached_property
    def _flat(self) -> _Flat:
        nodes, edges = self.problem.nodes, self.problem.edges
        sizes = [size for _, size in self._outputs]
        return _Flat(
            node_starts=_starts([n.microbatch_seconds for n in nodes]),
            nodes=np.array([_joined(part) for part in zip(*map(_parts, nodes), strict=True)]),
            a=np.array([e.a for e in edges], dtype=np.int64),
            b=np.array([e.b for e in edges], dtype=np.int64),
            edge_starts=_starts([e.seconds for e in edges]),
            widths=np.array([e.seconds.shape[1] for e in edges], dtype=np.int64),
            seconds=_joined([e.seconds if e.times == 1 else e.seconds * e.times for e in edges]),
            each_iteration=np.array([e.each_iteration for e in edges], dtype=np.bool_),
            makers=np.array([v for v, _ in self._outputs], dtype=np.int64),
            output_starts=_starts(sizes),
            sizes=_joined(sizes),
        )


class _Flat(NamedTuple):
    """The arrays of a piece one after the other: of all nodes, of all edges, of all outputs."""

    node_starts: Ints
    nodes: Floats
    """[4, entries], the figures of `_parts`."""
    a: Ints
    b: Ints
    edge_starts: Ints
    widths: Ints
    """Strategies of b."""
    seconds: Floats
    each_iteration: Flags
    makers: Ints
    """The node of every output."""
    output_starts: Ints
    sizes: Floats

    def lengths(self) -> tuple[Ints, Ints]:
        """Entries of every node, and of every edge."""
        nodes = np.diff(self.node_starts, append=self.nodes.shape[1])
        return nodes, np.diff(self.edge_starts, append=len(self.seconds))


def _parts(node: Node) -> tuple[Floats, Floats, Floats, Floats]:
    return node.microbatch_seconds, node.iteration_seconds, node.weight_bytes, node.activation_bytes


def _joined(arrays: Sequence[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *(array.ravel() for array in arrays)])


def _starts(arrays: Sequence[Floats]) -> Ints:
    lengths = np.array([array.size for array in arrays], dtype=np.int64)
    return np.cumsum(lengths) - lengths


def _placed(lengths: Ints, fixed: Flags, changed: Flags, same: int, own: int) -> tuple[list[Given | None], int, int]:
    """Where the costs of each are given, from `same` and `own` on; and the ends."""
    there, here = np.where(fixed, lengths, 0), np.where(changed, lengths, 0)
    at = np.where(changed, own + np.cumsum(here) - here, same + np.cumsum(there) - there).tolist()
    spaces = np.where(changed, OWN, SAME).tolist()
    given = [Given(*one) if some else None for *one, some in zip(spaces, at, (fixed | changed).tolist(), strict=True)]
    return given, same + int(there.sum()), own + int(here.sum())
