"""When each tensor of a stage is alive while one microbatch runs forward and backward.

The order of execution is: forward operators, then backward operators; before the first backward operator that waits
for a segment run its recomputed forward operators. Weights, accumulated gradients and held activations are counted
elsewhere; the other tensors alive are the workspace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alpa_explore.graph import Phase
from alpa_explore.intra_op.stage.stage_graph import StageGraph
from alpa_explore.numerics.arrays import Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Intervals:
    """Entry i: `tensors[i]` is alive at the steps starts[i] … ends[i]; a tensor that is recomputed has two entries."""

    tensors: tuple[int, ...]
    starts: Ints
    ends: Ints


def workspace_intervals(stage: StageGraph) -> Intervals:
    """Intervals of the storage tensors that operators of the stage produce and that are not held for the backward
    pass."""
    layered = stage.layered
    graph = layered.graph
    recomputed_of: dict[int, list[int]] = {}
    for index in stage.operators:
        if index in layered.recomputed:
            recomputed_of.setdefault(layered.segment_of[index], []).append(index)
    order: list[int] = []
    for index in stage.operators:
        if graph.operators[index].phase is Phase.BACKWARD:
            for segment in layered.waits.get(index, ()):
                order.extend(recomputed_of.pop(segment, ()))
        order.append(index)
    held = set(stage.held)
    spans: dict[int, tuple[int, int]] = {}
    closed: list[tuple[int, int, int]] = []
    for step, index in enumerate(order):
        operator = graph.operators[index]
        for tensor in operator.outputs:
            base = layered.storage[tensor]
            if base in held or graph.tensors[base].producer is None or not operator.stored:
                continue
            if tensor == base and base in spans:
                closed.append((base, *spans[base]))
                del spans[base]
            start = spans[base][0] if base in spans else step
            spans[base] = (start, step)
        for tensor in operator.inputs:
            base = layered.storage[tensor]
            if base in layered.in_kernel and operator.phase is Phase.BACKWARD:
                continue
            if base in spans:
                spans[base] = (spans[base][0], step)
    entries = closed + [(t, start, end) for t, (start, end) in spans.items()]
    return Intervals(
        tensors=tuple(t for t, _, _ in entries),
        starts=np.array([s for _, s, _ in entries], dtype=np.int64),
        ends=np.array([e for _, _, e in entries], dtype=np.int64),
    )
