"""What of a collective hides behind computing: coefficient × min(its seconds, the computing beside it).

Both are figures of one edge of a stage's problem, so what is hidden is known where sharding is chosen, and every solver
stays exact.

- A resharding between two operators hides behind either of them (an all-gather behind the product that reads its
  result, a reduce-scatter behind the one that makes it). What an operator computes in a microbatch is shared out
  equally among everything that comes to it or leaves it: no second of computing hides two seconds of collectives.
- The sum of a weight's gradient hides behind the backward pass of the last microbatch: behind that of the layer that
  makes the gradient, shared out among its weights by size. How its operators are divided is not known at that edge: the
  least seconds of each are counted, so that any choice takes as long at least. The sum for a weight of several layers
  has to wait for all of them: nothing of it is hidden.

A strategy with a collective inside its operator hides nothing, and nothing of it is hidden. The coefficients are the
device's: `collective_overlap` and `gradient_overlap`, 0 in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from alpa_explore.cost.model import CostModel
from alpa_explore.graph import Phase
from alpa_explore.intra_op.stage_graph import StageGraph

Floats = NDArray[np.float64]


class Overlap:
    """What hides in one stage on one mesh. Figures depend on the layers of an edge alone, not on the other layers."""

    def __init__(self, stage: StageGraph, model: CostModel) -> None:
        self.stage, self.layered, self.graph, self.model = stage, stage.layered, stage.layered.graph, model
        self._rooms: dict[int, Floats] = {}

    def beside(self, seconds: Floats, operators: Sequence[int | None], times: int) -> Floats:
        """What is left of an edge [strategies of a, strategies of b] that is paid `times` a microbatch; `operators` are
        those at its ends, None where there is none."""
        coefficient = self.model.device.collective_overlap
        if not coefficient:
            return seconds
        first, second = (np.zeros(1) if o is None else self._room(o) for o in operators)
        return _exposed(seconds, (first[:, None] + second[None, :]) / times, coefficient)

    def behind_backward(self, seconds: Floats, position: int) -> Floats:
        """What is left of the sum of the gradient of a parameter, given by its place in `graph.parameters`."""
        coefficient = self.model.device.gradient_overlap
        if not coefficient:
            return seconds
        layer = self._layer_of(position)
        if layer is None:
            return seconds
        share = self._bytes(position) / self._bytes_of_layer[layer]
        return _exposed(seconds, np.array(self._backward_seconds(layer) * share), coefficient)

    def _room(self, operator: int) -> Floats:
        """Of each strategy the seconds of a microbatch that each edge of the operator can hide behind."""
        if operator not in self._rooms:
            made = self.graph.operators[operator].outputs
            edges = len(self.graph.operators[operator].inputs) + sum(
                self.graph.operators[r].inputs.count(t) for t in made for r in self.graph.readers.get(t, ())
            )
            runs = 2 if operator in self.layered.recomputed else 1
            self._rooms[operator] = self._computing(operator) * runs / max(edges, 1)
        return self._rooms[operator]

    def _computing(self, operator: int) -> Floats:
        """Of each strategy the seconds that collectives of others can hide behind."""
        priced = self.model.operator(self.graph.operators[operator], self.graph.tensors)
        alone = np.array([not any(s.sync_bytes) for s in priced.strategies], dtype=np.bool_)
        return np.where(alone, priced.seconds, 0.0)

    def _backward_seconds(self, layer: int) -> float:
        """Least seconds of a layer's backward pass, with what it computes again."""
        return sum(
            float(self._computing(o).min())
            for o in self.stage.operators
            if self.layered.layer_of[o] == layer
            and (self.graph.operators[o].phase is Phase.BACKWARD or o in self.layered.recomputed)
        )

    def _layer_of(self, position: int) -> int | None:
        """The layer that makes a parameter's gradient; None where it is several."""
        makers = (self.graph.tensors[t].producer for t in self.layered.contributions[position])
        layers = {self.layered.layer_of[p] for p in makers if p is not None}
        return layers.pop() if len(layers) == 1 else None

    @cached_property
    def _bytes_of_layer(self) -> dict[int, int]:
        """Of each layer the bytes of the parameters whose gradients it makes alone."""
        found: dict[int, int] = {}
        for position in self.stage.parameters:
            if (layer := self._layer_of(position)) is not None:
                found[layer] = found.get(layer, 0) + self._bytes(position)
        return found

    def _bytes(self, position: int) -> int:
        return self.graph.tensors[self.graph.parameters[position].tensor].bytes


def _exposed(seconds: Floats, computing: Floats, coefficient: float) -> Floats:
    return np.asarray(seconds - coefficient * np.minimum(seconds, computing))
