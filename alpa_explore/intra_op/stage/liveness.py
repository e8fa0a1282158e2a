"""When each tensor of a stage is alive while one microbatch runs forward and backward.

The order of execution is: forward operators, then backward operators; before the first backward operator that waits
for a segment run its recomputed forward operators. Weights and accumulated gradients are counted elsewhere. What is
held for the backward pass is freed behind the last backward operator that reads it, and the rest behind its last
reader. Autograd computes the backward operators of one forward operator together: what they read, and the gradients
that they make, are alive until the last of them has run; what a formula needs on the way is alive until its gradient is
there, and in a backward pass that the model writes itself until its last reader. Memory that autograd keeps for its
shape alone is freed with them, too. The loss is alive to the end. A new value of a buffer is in that buffer.
A compiled kernel runs as soon as what it reads is there, and what torch.compile makes
of a backward pass returns all gradients of weights at its end; where parts are recomputed, the operators of its kernels
run one after another. The workspace is what a microbatch takes at its peak, above what it holds when its forward pass
ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np

from alpa_explore.graph import Operator, Phase, TrainingGraph
from alpa_explore.graph.blocks import block_number
from alpa_explore.graph.counts import is_view, packet
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.intra_op.stage.segments import saved_unread
from alpa_explore.intra_op.stage.stage_graph import StageGraph
from alpa_explore.numerics.arrays import Flags, Floats, Ints, entries_of_runs


def peak_bytes(starts: Ints, ends: Ints, sizes: Floats) -> Floats:
    """For each row of `sizes` [rows, tensors] the largest sum of those alive at one step; tensor i is alive at steps
    starts[i] … ends[i], inclusive."""
    rows, tensors = sizes.shape
    if tensors == 0:
        return np.zeros(rows)
    steps = int(ends.max()) + 2
    at = np.concatenate((starts, ends + 1)) + steps * np.arange(rows)[:, None]
    change = np.bincount(at.ravel(), np.concatenate((sizes, -sizes), axis=1).ravel(), minlength=rows * steps)
    peaks: Floats = change.reshape(rows, steps).cumsum(axis=1).max(axis=1)
    return peaks


_NORMS = frozenset({"alpa_explore.rms_norm_backward", "aten.native_layer_norm_backward"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Intervals:
    """Entry i: `tensors[i]` is alive at the steps starts[i] … ends[i]; a tensor that is recomputed has two entries, and
    one in whose size an operator needs memory (`Unfused.workspaces`) another of the step at which that runs."""

    tensors: tuple[int, ...]
    starts: Ints
    ends: Ints
    held: Flags
    """Whether the tensor is held for the backward pass."""

    def among(self, chosen: Flags) -> Intervals:
        """Those that are `chosen`."""
        tensors = tuple(t for t, one in zip(self.tensors, chosen.tolist(), strict=True) if one)
        return Intervals(tensors=tensors, starts=self.starts[chosen], ends=self.ends[chosen], held=self.held[chosen])

    def peak(self, sizes: Floats) -> Floats:
        """For each row of `sizes` [rows, tensors] the most bytes alive at one step."""
        return peak_bytes(self.starts, self.ends, sizes)

    def workspace(self, sizes: Floats) -> Floats:
        """For each row of `sizes` [rows, tensors] the workspace, in bytes."""
        above: Floats = self.peak(sizes) - sizes[:, self.held].sum(axis=1)
        return above


def workspace_intervals(stage: StageGraph) -> Intervals:
    """Intervals of the storage tensors that operators of the stage produce. What the model returns is alive to the end,
    as all that is held and that no backward operator reads."""
    if "intervals" not in stage.memo:
        stage.memo["intervals"] = _found(stage)
    intervals: Intervals = stage.memo["intervals"]
    return intervals


def _found(stage: StageGraph) -> Intervals:
    # By tensor, in the order of execution: an interval begins with the first event that makes the tensor, or makes it
    # anew, and ends with the last event before the next one begins.
    execution = np.array(execution_order(stage), dtype=np.int64)
    tensors, makes, steps = _events(stage.layered, execution)
    positions = np.argsort(tensors, kind="stable")
    tensors, makes, steps = tensors[positions], makes[positions], steps[positions]
    made = np.flatnonzero(makes > READ)
    is_held = np.isin(tensors, stage.held)
    begins = (makes == ANEW) & ~is_held
    begins[made[np.unique(tensors[made], return_index=True)[1]]] = True
    firsts = np.flatnonzero(begins)
    # Reads before the first interval are of a tensor from outside the stage.
    last_events = np.searchsorted(tensors, tensors[firsts], side="right") - 1
    ends = np.minimum(last_events, np.append(firsts[1:], len(tensors)) - 1)
    # First those that are made again, in the order in which that ends them; then the others, in which they begin.
    again = ends < last_events
    ended_by = positions[np.minimum(ends + 1, len(positions) - 1)]
    order = np.lexsort((np.where(again, ended_by, positions[firsts]), ~again))
    tensors, starts, ends, held = (
        tensors[firsts][order],
        steps[firsts][order],
        steps[ends][order],
        is_held[firsts][order],
    )
    nodes = _autograd_nodes(stage.layered, execution)
    if stage.layered.returns_together:
        leaving = {stage.layered.storage[t] for p in stage.parameters for t in stage.layered.contributions[p]}
        if not stage.layered.recomputed:
            _join_kernels(stage, tensors, starts, ends, held & (nodes[ends] < 0))
        ends[np.isin(tensors, list(leaving))] = len(nodes) - 1
    else:
        ends = _ends_with_nodes(stage, nodes, execution, tensors, starts, ends)
        _sum_over_uses(stage, tensors, starts, ends)
        ends[tensors == stage.layered.storage[stage.layered.graph.loss]] = len(nodes) - 1
    returned = np.isin(tensors, list(stage.layered.returned))
    ends[held & ((nodes[ends] < 0) | returned)] = len(nodes) - 1
    needed, begins, last = _workspaces(stage)
    return Intervals(
        tensors=(*tensors.tolist(), *needed),
        starts=np.append(starts, begins),
        ends=np.append(ends, last),
        held=np.append(held, np.zeros(len(last), dtype=np.bool_)),
    )


def _workspaces(stage: StageGraph) -> tuple[list[int], Ints, Ints]:
    """The tensors in whose sizes operators need memory while they run, and the steps from which and to which."""
    layered, needed, begins, ends = stage.layered, [], [], []
    order = [layered.graph.operators[index] for index in execution_order(stage)]
    for step, operator in enumerate(order):
        for place in () if operator.unfused is None else operator.unfused.workspaces:
            of = layered.storage[(*operator.inputs, *operator.outputs)[place]]
            readers = (s for s in range(step, len(order)) if of in _read(layered, order[s]) and order[s].bytes_accessed)
            needed.append(of)
            begins.append(step)
            ends.append(step if place < len(operator.inputs) else next(readers, step))
    return needed, np.array(begins, dtype=np.int64), np.array(ends, dtype=np.int64)


def _join_kernels(stage: StageGraph, tensors: Ints, starts: Ints, ends: Ints, stays: Flags) -> None:
    """A fused kernel reads all it reads until it ends, and writes what it makes in place of what nobody reads then, one
    tensor for one of its size: in `ends`. What `stays` is replaced by nothing. The gradients of norms' weights are sums
    over tokens: those of a block are one kernel, so what one reads is alive until the next runs."""
    operators = [stage.layered.graph.operators[index] for index in execution_order(stage)]
    kernels = [None if o.fused is None else o.fused.operators for o in operators]
    last = {kernel: step for step, kernel in enumerate(kernels)}
    norms = [(kernels[step], block_number(o.module)) for step, o in enumerate(operators) if packet(o.kind) in _NORMS]
    until = {one: last[other] for (one, block), (other, of) in pairwise(norms) if block == of}
    sizes = [stage.layered.graph.tensors[t].bytes for t in tensors.tolist()]
    freed: dict[tuple[object, int], list[int]] = defaultdict(list)
    for place in np.argsort(ends, kind="stable").tolist():
        kernel = kernels[ends[place]]
        if kernel is not None and kernels[starts[place]] != kernel:
            ends[place] = until.get(kernel, last[kernel])
            if kernel not in until and not stays[place]:
                freed[kernel, sizes[place]].append(place)
    for place in np.argsort(starts, kind="stable").tolist():
        kernel = kernels[starts[place]]
        if kernel is not None and ends[place] >= last[kernel] and freed[kernel, sizes[place]]:
            ends[freed[kernel, sizes[place]].pop()] = starts[place] - 1


def _ends_with_nodes(stage: StageGraph, nodes: Ints, execution: Ints, tensors: Ints, starts: Ints, ends: Ints) -> Ints:
    """`ends` with what the nodes of autograd keep alive. Gradients that are summed to the shape of what was broadcast
    are there before the sum, which is not part of the formula."""
    _, _, is_sum, own = _derived(stage.layered)
    leaving = {stage.layered.storage[t] for p in stage.parameters for t in stage.layered.contributions[p]}
    inside = (nodes[starts] >= 0) & (nodes[starts] == nodes[ends]) & ~np.isin(tensors, list(leaving))
    leaves = np.zeros(len(nodes), dtype=np.bool_)
    leaves[starts[~inside]] = True
    results = leaves.copy()
    results[starts[inside & (leaves & is_sum[execution])[ends]]] = True
    last_of_node = np.searchsorted(nodes, nodes, side="right") - 1
    following = np.where(results, np.arange(len(nodes)), len(nodes))
    of_formula = np.minimum(np.minimum.accumulate(following[::-1])[::-1], last_of_node)
    found: Ints = np.where(inside, np.where(own[execution][starts], ends, of_formula[ends]), last_of_node[ends])
    return np.where(nodes[ends] < 0, ends, found)


def _sum_over_uses(stage: StageGraph, tensors: Ints, starts: Ints, ends: Ints) -> None:
    """Of a weight that is used several times the first gradient waits for the last, to which it is added: in `ends`."""
    for position in stage.parameters:
        terms = {stage.layered.storage[t] for t in stage.layered.contributions[position]}
        if len(terms) > 1:
            places = np.flatnonzero(np.isin(tensors, list(terms)))
            if len(places):
                ends[places[np.argmin(starts[places])]] = ends[places].max()


def _autograd_nodes(layered: LayeredGraph, order: Ints) -> Ints:
    """For each step the number of its run of backward operators of one forward operator, ascending; -1 before the
    backward pass. What adds gradients of several runs is a run of its own."""
    of_forward, adds, _, _ = _derived(layered)
    forward, alone = of_forward[order], adds[order]
    begins = np.ones(len(order), dtype=np.bool_)
    begins[1:] = (forward[1:] != forward[:-1]) | alone[1:] | alone[:-1] | (forward[1:] < 0)
    backward = np.logical_or.accumulate(forward >= 0)
    return np.where(backward, begins.cumsum(), -1)


@lru_cache(maxsize=4)
def _derived(layered: LayeredGraph) -> tuple[Ints, Flags, Flags, Flags]:
    """For all operators: the forward operator of a backward one, -1 for others; whether it adds gradients that
    backward operators of others made; whether it is a sum; whether the model's own code calls it in the backward
    pass."""
    operators = layered.graph.operators
    forward = [-1 if o.forward is None or o.phase is not Phase.BACKWARD else o.forward for o in operators]
    adds, is_sum, own = (np.zeros(len(operators), dtype=np.bool_) for _ in range(3))
    for operator in operators:
        is_sum[operator.index] = packet(operator.kind) == "aten.sum"
        if forward[operator.index] >= 0:
            own[operator.index] = operator.source != operators[forward[operator.index]].source
        if forward[operator.index] >= 0 and packet(operator.kind) == "aten.add" and len(operator.inputs) == 2:
            makers = [layered.graph.tensors[t].producer for t in operator.inputs]
            others = [m is None or forward[m] != forward[operator.index] for m in makers]
            gradients = all(m is not None and forward[m] >= 0 for m in makers)
            adds[operator.index] = any(others) if gradients else all(others)
    return np.array(forward, dtype=np.int64), adds, is_sum, own


READ, VIEWED, ANEW = 0, 1, 2
"""What an operator does with a storage tensor: reads it, makes a view of it, makes it."""


def _events(layered: LayeredGraph, operators: Ints) -> tuple[Ints, Ints, Ints]:
    """The storage tensors that operators touch, in this order of execution: tensor, what is done, step."""
    begins, tensors, makes = _touched(layered)
    counts = begins[operators + 1] - begins[operators]
    steps = np.repeat(np.arange(len(operators)), counts)
    at = entries_of_runs(begins[operators], counts)
    return tensors[at], makes[at], steps


@lru_cache(maxsize=4)
def execution_order(stage: StageGraph) -> Sequence[int]:
    """The operators of a stage in the order in which they run: those that are recomputed twice."""
    layered = stage.layered
    if not layered.recomputed:
        if not layered.returns_together:
            return stage.operators
        phases = [layered.graph.operators[index].phase is Phase.BACKWARD for index in stage.operators]
        sides = ([i for i, back in zip(stage.operators, phases, strict=True) if back is side] for side in (False, True))
        return [index for side in sides for index in _kernel_order(layered.graph, side)]
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


def _kernel_order(graph: TrainingGraph, operators: Sequence[int]) -> list[int]:
    """These operators with those of a fused kernel, and views of what they make, together, as soon as what the kernel
    reads is there."""
    unit_of: dict[int | None, object] = {}
    for index in operators:
        operator = graph.operators[index]
        kernel = index if operator.fused is None else operator.fused.operators
        viewed = graph.tensors[operator.inputs[0]].producer if is_view(operator.kind) else None
        unit_of[index] = unit_of.get(viewed, kernel)
    members: dict[object, list[int]] = defaultdict(list)
    waits: dict[object, set[object]] = defaultdict(set)
    readers: dict[object, list[object]] = defaultdict(list)
    for index in operators:
        unit = unit_of[index]
        members[unit].append(index)
        for tensor in graph.operators[index].inputs:
            maker = unit_of.get(graph.tensors[tensor].producer, unit)
            if maker != unit and maker not in waits[unit]:
                waits[unit].add(maker)
                readers[maker].append(unit)
    place = {unit: of[0] if isinstance(unit, int) or not waits[unit] else -1 for unit, of in members.items()}
    ready = [(place[unit], of[0], unit) for unit, of in members.items() if not waits[unit]]
    heapify(ready)
    order: list[int] = []
    while ready:
        _, _, unit = heappop(ready)
        order += members[unit]
        for reader in readers[unit]:
            waits[reader].discard(unit)
            if not waits[reader]:
                heappush(ready, (place[reader], members[reader][0], reader))
    assert len(order) == len(operators)
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
    for tensor in operator.outputs:
        base = layered.storage[tensor]
        elsewhere = base in layered.unstored or base in layered.written
        if not elsewhere and layered.graph.tensors[base].producer is not None:
            yield base, ANEW if base == tensor else VIEWED


def _read(layered: LayeredGraph, operator: Operator) -> Iterator[int]:
    """The storage that an operator reads, or that its kernel reads to compute what it is not given."""
    for tensor in operator.inputs:
        base = layered.storage[tensor]
        if base in layered.unstored or (base in layered.in_kernel and operator.phase is Phase.BACKWARD):
            yield from layered.computed_from[base]
        else:
            yield base
    for saved in saved_unread(layered.graph, operator):
        if (base := layered.storage[saved]) in layered.all_held:
            yield base
