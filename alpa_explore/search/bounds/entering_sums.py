"""What a stage takes more where no pending sum may enter it: nothing that comes from outside a stage is pending there
(`stage_problem`), while inside a larger stage it may be.

Let R hold the stage r, and let a tensor enter r pending on some axes. A choice of r is made of R's by writing
"replicated" for "pending" on these axes, in the tensor and in all that takes its sum on as it is. It is legal, computes
as long (what is pending is as large as what is replicated), and every resharding out of it is as fast or faster: the
step that removed the pending sum is gone, or is a free slice. Only where other operands were pending beside it, as in
an addition, these must be complete as well: each by all-reduces on these axes, at most.

So an operator that may meet a pending sum from another layer counts all-reduces of its operands, all but the smallest,
on all axes, as often as it runs. Most models have none: the residual stream of a GPT begins with an addition of the
positions' weight, which is never pending, and so no later sum of it is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from alpa_explore.cluster import LogicalMesh
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.graph import Operator, Phase
from alpa_explore.intra_op.stage.layered_graph import UPDATE_LAYER, LayeredGraph
from alpa_explore.numerics.arrays import Floats
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.spec import PARTIAL
from alpa_explore.sharding.splits import splits_for
from alpa_explore.sharding.strategy import Split


class EnteringSums:
    """Where sums of a layered graph may meet such as come from another layer."""

    def __init__(self, layered: LayeredGraph) -> None:
        self._layers = layered.num_layers
        self._reduced: dict[int, Floats] = defaultdict(self._nowhere)
        """Bytes -> how often an all-reduce of so much counts, [first layer, last layer]."""
        self._unknown = self._nowhere() > 0
        """Where the choice could not be made: work is never repeated, or a spec constraint is violated."""
        for operator, fixed in _meetings(layered):
            at = layered.layer_of[operator.index]
            here = slice(None, at + 1), slice(at, None)
            if fixed:
                self._unknown[here] = True
            for size in sorted(layered.graph.tensors[t].bytes for t in operator.inputs)[1:]:
                self._reduced[size][here] += 2 if operator.index in layered.recomputed else 1

    def seconds(self, mesh: LogicalMesh) -> Floats:
        """At most so much more, [first layer, last layer]."""
        total = self._nowhere()
        for size, times in self._reduced.items():
            for axis in zip(mesh.shape, mesh.bandwidth, mesh.latency_seconds, strict=True):
                total += times * collective_seconds(StepKind.ALL_REDUCE, size, *axis)
        if mesh.devices > 1:
            total[self._unknown] = math.inf
        return total

    def _nowhere(self) -> Floats:
        return np.zeros((self._layers, self._layers))


def _meetings(layered: LayeredGraph) -> Iterator[tuple[Operator, bool]]:
    """Operators that may read a pending sum from another layer beside others; those that may not do without it (True):
    heavy ones, and those with a spec constraint."""
    graph, layer_of = layered.graph, layered.layer_of
    pending: set[int] = set()
    came: set[int] = set()
    """Of these such as may hold a sum that was pending when it came from another layer."""
    known: dict[int, tuple[list[Split], bool]] = {}
    for operator, signature in zip(graph.operators, graph.signatures, strict=True):
        if operator.phase is Phase.UPDATE:
            continue
        if id(signature) not in known:
            how = splits_for(operator, graph.tensors)
            known[id(signature)] = [s for s in how.splits if PARTIAL in (*s.inputs, *s.outputs)], how.heavy
        splits, heavy = known[id(signature)]
        fixed = heavy or operator.index in layered.spec_constraints
        meets = False
        for split in splits:
            sums = {t for t, p in zip(operator.inputs, split.inputs, strict=True) if p == PARTIAL}
            if not sums <= pending:
                continue
            made = {t for t, p in zip(operator.outputs, split.outputs, strict=True) if p == PARTIAL}
            pending |= made
            if not sums.isdisjoint(came):
                came |= made
                meets = meets or len(sums) > 1 or fixed
        if meets:
            yield operator, fixed
        for tensor in pending.intersection(operator.outputs):
            if any(layer_of[r] not in (layer_of[operator.index], UPDATE_LAYER) for r in graph.readers.get(tensor, ())):
                came.add(tensor)
