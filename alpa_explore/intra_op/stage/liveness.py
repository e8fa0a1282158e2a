"""When each tensor of a stage is alive while one microbatch runs forward and backward.

The order of execution is: forward operators, then backward operators; before the first backward operator that waits
for a segment run its recomputed forward operators. Weights, accumulated gradients and held activations are counted
elsewhere; the other tensors alive are the workspace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from alpa_explore.graph import Operator, Phase
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
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
    # By tensor, in the order of execution: an interval begins with the first event that makes the tensor, or makes it
    # anew, and ends with the last event before the next one begins.
    tensors, makes, steps = _events(stage)
    counted = np.ones(len(stage.layered.storage), dtype=np.bool_)
    counted[list(stage.held)] = False
    positions = np.flatnonzero(counted[tensors])
    positions = positions[np.argsort(tensors[positions], kind="stable")]
    tensors, makes, steps = tensors[positions], makes[positions], steps[positions]
    made = np.flatnonzero(makes > READ)
    begins = makes == ANEW
    begins[made[np.unique(tensors[made], return_index=True)[1]]] = True
    firsts = np.flatnonzero(begins)
    # Reads before the first interval are of a tensor from outside the stage.
    last_events = np.searchsorted(tensors, tensors[firsts], side="right") - 1
    ends = np.minimum(last_events, np.append(firsts[1:], len(tensors)) - 1)
    # First those that are made again, in the order in which that ends them; then the others, in which they begin.
    again = ends < last_events
    ended_by = positions[np.minimum(ends + 1, len(positions) - 1)]
    order = np.lexsort((np.where(again, ended_by, positions[firsts]), ~again))
    return Intervals(
        tensors=tuple(tensors[firsts][order].tolist()), starts=steps[firsts][order], ends=steps[ends][order]
    )


READ, VIEWED, ANEW = 0, 1, 2
"""What an operator does with a storage tensor: reads it, makes a view of it, makes it."""


def _events(stage: StageGraph) -> tuple[Ints, Ints, Ints]:
    """The storage tensors that operators of a stage touch, in the order of execution: tensor, what is done, step."""
    operators = np.array(_execution_order(stage), dtype=np.int64)
    begins, tensors, makes = _touched(stage.layered)
    counts = begins[operators + 1] - begins[operators]
    steps = np.repeat(np.arange(len(operators)), counts)
    at = np.arange(len(steps)) + (begins[operators] - (np.cumsum(counts) - counts))[steps]
    return tensors[at], makes[at], steps


def _execution_order(stage: StageGraph) -> Sequence[int]:
    """The operators of a stage in the order in which they run: those that are recomputed twice."""
    layered = stage.layered
    if not layered.recomputed:
        return stage.operators
    recomputed_of: dict[int, list[int]] = {}
    for index in stage.operators:
        if index in layered.recomputed:
            recomputed_of.setdefault(layered.segment_of[index], []).append(index)
    order: list[int] = []
    for index in stage.operators:
        if layered.graph.operators[index].phase is Phase.BACKWARD:
            for segment in layered.waits.get(index, ()):
                order.extend(recomputed_of.pop(segment, ()))
        order.append(index)
    return order


@lru_cache(maxsize=4)  # a plan has at most four versions of a graph
def _touched(layered: LayeredGraph) -> tuple[Ints, Ints, Ints]:
    """For all operators, one after the other: (where each begins, storage tensors, what it does with them)."""
    begins, tensors, makes = [0], [], []
    for operator in layered.graph.operators:
        of_operator = [*_made(layered, operator), *((tensor, READ) for tensor in _read(layered, operator))]
        tensors += [tensor for tensor, _ in of_operator]
        makes += [what for _, what in of_operator]
        begins.append(len(tensors))
    return np.array(begins), np.array(tensors, dtype=np.int64), np.array(makes, dtype=np.int64)


def _made(layered: LayeredGraph, operator: Operator) -> Iterator[tuple[int, int]]:
    for tensor in operator.outputs if operator.stored else ():
        base = layered.storage[tensor]
        if layered.graph.tensors[base].producer is not None:
            yield base, ANEW if base == tensor else VIEWED


def _read(layered: LayeredGraph, operator: Operator) -> Iterator[int]:
    for tensor in operator.inputs:
        base = layered.storage[tensor]
        if base not in layered.in_kernel or operator.phase is not Phase.BACKWARD:
            yield base
