"""Overlap of communication and computation: the seconds of a resharding that nothing hides.

They depend on the two ends of one edge of the stage problem, so they are a cost of that edge, and every solver stays
exact. Who says what overlaps decides the form.

**The software** (`Software`; fitted to measured runs). Beside a matrix product – one that made the input or reads the
result, views in between not counted – gathers and reduce-scatters hide tensor_overlap × min(their seconds, those of the
product); all-reduces hide nothing. Gathers of stored weights, and reduce-scatters of their gradients, in every
microbatch (ZeRO-2 and 3) hide behind what the block of that product computes in the same pass (outside of blocks,
behind the product), which is divided among all of them by size. What is exposed is that of `cost.stage`: of
like blocks the sum is what is said of the whole pass.

**The user**, for a device (`collective_overlap`). A resharding between two operators hides coefficient × min(its
seconds, those computed beside it): an all-gather behind the matrix product that reads its result, a reduce-scatter
behind the one that produces its input. The seconds that an operator computes in a microbatch are divided equally among
all of its edges, so that no second of computation hides two seconds of collectives. A strategy with a collective inside
its operator hides nothing, and nothing of it is hidden.

In both (`gradient_overlap`, or `gradient_sync` of the software), the sum of a weight's gradient hides behind the
backward pass, in the last microbatch, of the operator that read the weight (both gradients, and recomputation),
divided among its weights by size; with software, the gathering of the updated weight hides behind that operator. The
strategies of these operators are not known at that edge: the least seconds of each are counted, so that no choice is
priced too low. For a weight that several operators of the stage read, the sum waits for all of them, and its gathering
delays the first: nothing of either is hidden.

In the paper nothing overlaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from alpa_explore.cost.model import CostModel
from alpa_explore.cost.stage import exposed_beside
from alpa_explore.graph import Tensor
from alpa_explore.graph.counts import ROUTED, packet
from alpa_explore.intra_op.stage.stage_graph import StageGraph
from alpa_explore.numerics.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class Resharding:
    """The resharding on one edge of a stage problem."""

    tensor: Tensor
    sources: Ints
    """Specs of the strategies at its first end."""
    targets: Ints
    stored: bool
    """Whether it is of a stored weight, its gradient or its update."""
    together: float
    """As `Edge.together`."""
    rows: Ints | None = None
    """The strategies at its first end; None for all."""
    columns: Ints | None = None

    def between(self, rows: Ints, columns: Ints) -> Resharding:
        """That of some of its strategies."""
        return Resharding(
            self.tensor, self.sources[rows], self.targets[columns], self.stored, self.together, rows, columns
        )


class Overlap:
    """Exposed seconds in one stage on one mesh.

    Those of an edge depend on its operators alone: they are the same in every stage that contains them, and therefore
    in the block subproblems that stages are composed of.
    """

    def __init__(self, stage: StageGraph, model: CostModel) -> None:
        self.stage, self.layered, self.graph, self.model = stage, stage.layered, stage.layered.graph, model
        self._edge_shares: dict[int, Floats] = {}
        self._computed: dict[tuple[int, ...], float] = {}
        """Operators -> the least seconds that they compute."""
        software = model.device.software
        self.hides = bool(
            model.device.hidden_collectives
            or model.device.hidden_gradient_sums
            or software.gradient_sync == "overlapped"
        )
        """False when nothing overlaps on this device."""
        self.hides_stored = software.gradient_sync == "overlapped" and not model.device.overlaps_given
        """Whether the software hides collectives of stored weights."""

    def beside(
        self, edge: Resharding, seconds: Floats, operators: Sequence[int | None], times: int, model: CostModel
    ) -> Floats:
        """Exposed seconds of an edge, shape [strategies of a, strategies of b], that is paid `times` per microbatch.

        `seconds` are those with nothing hidden, `operators` those at its ends, None for an end that is not an operator;
        `model` keeps what is computed.
        """
        device = self.model.device
        if device.collective_overlap:
            first, second = (
                np.zeros(1) if o is None else self._edge_share(o) if kept is None else self._edge_share(o)[kept]
                for o, kept in zip(operators, (edge.rows, edge.columns), strict=True)
            )
            return _exposed(seconds, (first[:, None] + second[None, :]) / times, device.collective_overlap)
        product = self._product(operators)
        if product is None:
            return seconds
        if edge.stored:
            if device.software.gradient_sync != "overlapped":
                return seconds
            return exposed_beside(self._per_byte(product) * edge.tensor.bytes, seconds, device.software)
        # No framework's grouped products hide the gathering of the tokens that they route.
        if not device.software.tensor_overlap or packet(self.graph.operators[product].kind) in ROUTED:
            return seconds
        return model.beside_product(edge.tensor, edge.sources, edge.targets, self._least(product))

    def _least(self, operator: int) -> float:
        return self.model.least_seconds(self.graph, operator)

    def _per_byte(self, product: int) -> float:
        """Seconds that are computed beside each byte that is resharded where weights of a product are."""
        operators, size = self.layered.stored_beside[product]
        if operators not in self._computed:
            self._computed[operators] = sum(map(self._least, operators))
        return self._computed[operators] / size

    def _product(self, operators: Sequence[int | None]) -> int | None:
        """The matrix product at one end of an edge, views in between not counted; else None."""
        for end, operator in enumerate(operators):
            if operator is not None and (product := self.layered.products[operator][end]) is not None:
                return product
        return None

    def behind_backward(self, seconds: Floats, position: int) -> Floats:
        """Exposed seconds of the sum of the gradient of the parameter at `position` in `graph.parameters`."""
        coefficient, reader = self.model.device.hidden_gradient_sums, self._reader(position)
        if not coefficient or reader is None:
            return seconds
        forward, share = reader
        computing = self._backward_seconds(forward) * share
        if self.hides_stored:
            return exposed_beside(computing, seconds, self.model.device.software)
        return _exposed(seconds, np.array(computing), coefficient)

    def behind_forward(self, seconds: Floats, position: int) -> Floats:
        """Exposed seconds of the gathering of the updated parameter at `position` in `graph.parameters`."""
        reader = self._reader(position) if self.hides_stored else None
        if reader is None:
            return seconds
        forward, share = reader
        return exposed_beside(float(self._computing(forward).min()) * share, seconds, self.model.device.software)

    def _reader(self, position: int) -> tuple[int, float] | None:
        """The forward operator that reads a parameter, and the share of the parameter in all that it reads; None where
        there are several such operators, or none."""
        if len(readers := self._readers[position]) != 1:
            return None
        (forward,) = readers
        return forward, self._bytes(position) / sum(map(self._bytes, self._weights_of[forward]))

    def _edge_share(self, operator: int) -> Floats:
        """For each strategy the seconds of a microbatch behind which one edge of the operator can hide."""
        if operator not in self._edge_shares:
            edges = len(self.graph.operators[operator].inputs) + self.layered.uses[operator]
            runs = 2 if operator in self.layered.recomputed else 1
            self._edge_shares[operator] = self._computing(operator) * runs / max(edges, 1)
        return self._edge_shares[operator]

    def _computing(self, operator: int) -> Floats:
        """For each strategy the seconds that can hide collectives of edges: 0 where it has a collective itself."""
        priced = self.model.operator(self.graph, operator)
        without_collective = np.array([not any(s.exchanges) for s in priced.strategies], dtype=np.bool_)
        return np.where(without_collective, priced.seconds, 0.0)

    def _backward_seconds(self, forward: int) -> float:
        """Least seconds of the backward pass of a forward operator, recomputation included."""
        runs = [*self._backward_of.get(forward, ()), *[forward] * (forward in self.layered.recomputed)]
        return sum(float(self._computing(o).min()) for o in runs)

    @cached_property
    def _backward_of(self) -> dict[int, list[int]]:
        """Forward operator -> the operators of the stage that are its backward pass."""
        backward: dict[int, list[int]] = {}
        for index in self.stage.operators:
            if (forward := self.graph.operators[index].forward) is not None:
                backward.setdefault(forward, []).append(index)
        return backward

    @cached_property
    def _weights_of(self) -> dict[int, list[int]]:
        """Forward operator -> the parameters whose gradients its backward pass produces."""
        weights: dict[int, list[int]] = {}
        for position, forwards in self._readers.items():
            for forward in forwards:
                weights.setdefault(forward, []).append(position)
        return weights

    @cached_property
    def _readers(self) -> dict[int, frozenset[int]]:
        """For each parameter the forward operators of the stage whose backward passes produce its gradient."""
        stage_operators = set(self.stage.operators)
        readers = {}
        for position in self.stage.parameters:
            producers = self.layered.gradient_makers[position] & stage_operators
            forwards = {self.graph.operators[m].forward for m in producers}
            readers[position] = frozenset(f for f in forwards if f is not None)
        return readers

    def _bytes(self, position: int) -> int:
        return self.graph.tensors[self.graph.parameters[position].tensor].bytes


def _exposed(seconds: Floats, computing: Floats, coefficient: float) -> Floats:
    return np.asarray(seconds - coefficient * np.minimum(seconds, computing))
