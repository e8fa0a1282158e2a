"""An upper bound on what a stage pays because no pending sum may enter it.

A tensor that enters a stage carries no pending sum (`stage_problem`); inside a larger stage the same tensor may carry
one. Let the stage R contain the stage r, and let a tensor be pending on some axes in R where it enters r. A choice for
R gives one for r: replace "pending" by "replicated" on these axes, in the tensor and in all operators that pass its sum
on. The new choice is legal. It computes for as long, because a pending tensor is as large as a replicated one. Every
resharding out of it is as fast or faster: the step that completed the sum disappears or becomes a free slice. Only
where a second operand was pending on the same axes, as in an addition, must that operand be completed as well, which
takes all-reduces on these axes at most.

So every operator that may read a pending sum from another layer is charged all-reduces of all its operands but the
smallest, on all axes, each time it runs. Most models have no such operator: the residual stream of a GPT begins with
the addition of the position weight, which is never pending, so no later sum of the stream is pending either.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from alpa_explore.cluster import LogicalMesh
from alpa_explore.cost.collectives import axis_seconds
from alpa_explore.graph import Operator, Phase
from alpa_explore.intra_op.stage.layered_graph import UPDATE_LAYER, LayeredGraph
from alpa_explore.numerics.arrays import Floats
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.spec import PARTIAL
from alpa_explore.sharding.splits import splits_for
from alpa_explore.sharding.strategy import Split


class EnteringSums:
    """Operators of a layered graph that may read a pending sum from another layer beside other operands."""

    def __init__(self, layered: LayeredGraph) -> None:
        self._layers = layered.num_layers
        self._reduced: dict[int, Floats] = defaultdict(self._zeros)
        """Bytes -> number of all-reduces of this size, [first layer, last layer]."""
        self._unbounded = self._zeros() > 0
        """Where the choice for r may be illegal: an operator whose work is never replicated, or a spec constraint."""
        for operator, fixed in _meetings(layered):
            at = layered.layer_of[operator.index]
            containing = slice(None, at + 1), slice(at, None)
            if fixed:
                self._unbounded[containing] = True
            for size in sorted(layered.graph.tensors[t].bytes for t in operator.inputs)[1:]:
                self._reduced[size][containing] += 2 if operator.index in layered.recomputed else 1

    def seconds(self, mesh: LogicalMesh) -> Floats:
        """Upper bounds of the additional seconds, [first layer, last layer]."""
        total = self._zeros()
        for size, times in self._reduced.items():
            for axis in range(len(mesh.shape)):
                total += times * axis_seconds(StepKind.ALL_REDUCE, size, mesh, axis)
        if mesh.devices > 1:
            total[self._unbounded] = math.inf
        return total

    def _zeros(self) -> Floats:
        return np.zeros((self._layers, self._layers))


def _meetings(layered: LayeredGraph) -> Iterator[tuple[Operator, bool]]:
    """Operators that may read a pending sum from another layer beside other operands, and whether the strategy for
    replicated operands may be missing (heavy operators, and those with a spec constraint)."""
    graph, layer_of = layered.graph, layered.layer_of
    pending: set[int] = set()
    entered: set[int] = set()
    """The pending tensors whose sum may have entered from another layer."""
    splits_of: dict[int, tuple[list[Split], bool]] = {}
    for operator, signature in zip(graph.operators, graph.signatures, strict=True):
        if operator.phase is Phase.UPDATE:
            continue
        if id(signature) not in splits_of:
            how = splits_for(operator, graph.tensors)
            splits_of[id(signature)] = [s for s in how.splits if PARTIAL in (*s.inputs, *s.outputs)], how.heavy
        splits, heavy = splits_of[id(signature)]
        fixed = heavy or operator.index in layered.spec_constraints
        meets = False
        for split in splits:
            sums = {t for t, p in zip(operator.inputs, split.inputs, strict=True) if p == PARTIAL}
            if not sums <= pending:
                continue
            made = {t for t, p in zip(operator.outputs, split.outputs, strict=True) if p == PARTIAL}
            pending |= made
            if not sums.isdisjoint(entered):
                entered |= made
                meets = meets or len(sums) > 1 or fixed
        if meets:
            yield operator, fixed
        for tensor in pending.intersection(operator.outputs):
            if any(layer_of[r] not in (layer_of[operator.index], UPDATE_LAYER) for r in graph.readers.get(tensor, ())):
                entered.add(tensor)
