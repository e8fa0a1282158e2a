"""What of a collective hides behind computing: coefficient × min(its seconds, the computing beside it).

Both are figures of one edge of a stage's problem, so what is hidden is known where sharding is chosen, and every solver
stays exact.

- A resharding between two operators hides behind either of them (an all-gather behind the product that reads its
  result, a reduce-scatter behind the one that makes it). What an operator computes in a microbatch is shared out
  equally among everything that comes to it or leaves it: no second of computing hides two seconds of collectives.
- The sum of a weight's gradient hides behind the backward pass of the last microbatch: behind that of the operator that
  read the weight (both gradients, and what is run again), shared out among its weights by size. How these are divided
  is not known at that edge: the least seconds of each are counted, so that any choice takes as long at least. The sum
  for a weight that several operators of the stage read waits for all of them: nothing of it is hidden.

A strategy with a collective inside its operator hides nothing, and nothing of it is hidden. The coefficients are the
device's: `collective_overlap` and `gradient_overlap`, 0 in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.stage.stage_graph import StageGraph
from alpa_explore.numerics.arrays import Floats


class Overlap:
    """What hides in one stage on one mesh. The figures of an edge depend on its operators alone: they are the same in
    any stage that holds them, and so in the pieces that stages are composed of."""

    def __init__(self, stage: StageGraph, model: CostModel) -> None:
        self.stage, self.layered, self.graph, self.model = stage, stage.layered, stage.layered.graph, model
        self._rooms: dict[int, Floats] = {}
        self.hides = bool(model.device.collective_overlap or model.device.gradient_overlap)
        """Whether anything does."""

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
        read_by = self._readers[position]
        if len(read_by) != 1:
            return seconds
        (forward,) = read_by
        together = [p for p, others in self._readers.items() if forward in others]
        share = self._bytes(position) / sum(map(self._bytes, together))
        return _exposed(seconds, np.array(self._backward_seconds(forward) * share), coefficient)

    def _room(self, operator: int) -> Floats:
        """Of each strategy the seconds of a microbatch that each edge of the operator can hide behind."""
        if operator not in self._rooms:
            edges = len(self.graph.operators[operator].inputs) + self.layered.uses[operator]
            runs = 2 if operator in self.layered.recomputed else 1
            self._rooms[operator] = self._computing(operator) * runs / max(edges, 1)
        return self._rooms[operator]

    def _computing(self, operator: int) -> Floats:
        """Of each strategy the seconds that collectives of others can hide behind."""
        priced = self.model.operator(self.graph, operator)
        alone = np.array([not any(s.sync_bytes) for s in priced.strategies], dtype=np.bool_)
        return np.where(alone, priced.seconds, 0.0)

    def _backward_seconds(self, forward: int) -> float:
        """Least seconds of the backward pass of a forward operator, with what is computed again."""
        runs = [o for o in self.stage.operators if self.graph.operators[o].forward == forward]
        runs += [forward] * (forward in self.layered.recomputed)
        return sum(float(self._computing(o).min()) for o in runs)

    @cached_property
    def _readers(self) -> dict[int, frozenset[int]]:
        """For each parameter of the stage the forward operators here whose backward passes make its gradient."""
        here = set(self.stage.operators)
        found = {}
        for position in self.stage.parameters:
            makers = {self.graph.tensors[t].producer for t in self.layered.contributions[position]} & here
            forwards = {self.graph.operators[m].forward for m in makers if m is not None}
            found[position] = frozenset(f for f in forwards if f is not None)
        return found

    def _bytes(self, position: int) -> int:
        return self.graph.tensors[self.graph.parameters[position].tensor].bytes


def _exposed(seconds: Floats, computing: Floats, coefficient: float) -> Floats:
    return np.asarray(seconds - coefficient * np.minimum(seconds, computing))
