"""Lower bounds on stage costs without a solve: from FLOPs and bytes, and from the costs of another layering of the
graph.

On n devices an operator takes at least the time of 1/n of its FLOPs and bytes. An axis of a logical mesh that divides
no loop of the operator divides none of its FLOPs: on 3 nodes, a product whose sizes are powers of two runs as on one.
share(X) is the sum of these times over the operators of X. Let R be a stage of the new layering that contains the
stage r, which consists of whole layers of the other one. A choice for R, restricted to r, is a choice for r, and the
rest of R costs at least its share, so

    cost(R)  ≥  cost(r) − slack(r) + share(R − r)

The slack is what r pays alone but need not pay as a part of R:

- A tensor leaves r without a pending sum, but inside R it may keep one. This saves at most the cheapest completion of
  the sum. (Where R completes it at the same size behind r, as in a residual stream, R pays for it as well, and the
  slack is larger than necessary.)
- A tensor enters r without a pending sum, but inside R it may carry one and be added to another one that is pending in
  r. This saves at most the seconds of `entering_sums`.
- Operators D that r computes twice may run once in R, because the layers decide what is rematerialised. Let x be the
  seconds that R spends on D. R costs at least x plus the shares of all operators but D, so for every x

    cost(R)  ≥  share(R) + ( cost(r) − slack(r) − share(r) − share(D) ) / 2
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import permutations

import numpy as np

from alpa_explore.cluster import Device, LogicalMesh
from alpa_explore.cost.collectives import axis_seconds
from alpa_explore.cost.compute import least_seconds
from alpa_explore.cost.kernels import Kernel, kernel_dtype, kernel_kind
from alpa_explore.graph import Operator, Phase, Tensor
from alpa_explore.graph.counts import steps as steps_in_sequence
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph
from alpa_explore.numerics.arrays import Flags, Floats, Ints
from alpa_explore.pricing.stage_costs import StageCosts
from alpa_explore.pricing.tuning import TOLERANCE
from alpa_explore.search.bounds.entering_sums import EnteringSums
from alpa_explore.search.bounds.least_bytes import least_bytes
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.splits import splits_for

ENVELOPE = 2 * TOLERANCE
"""Relative gap of the known candidates of a problem above the fastest choice, at a B for which it was sought."""


class LowerBounds:
    """Lower bounds for the stages of `layered`; `known` are the costs of the stages of `other` on the same
    submeshes. `devices` are those of each kind of nodes: one where all are alike."""

    def __init__(
        self,
        layered: LayeredGraph,
        devices: Sequence[Device],
        meshes: Sequence[Sequence[LogicalMesh]],
        *,
        other: LayeredGraph,
        known: StageCosts,
        num_microbatches: int,
    ) -> None:
        self.layered, self.other, self.devices, self.meshes = layered, other, devices, meshes
        self.submeshes, self._memory_of = known.submeshes, known.memory_of
        self._bytes = least_bytes(layered)
        self._least: dict[tuple[int, int, int, int], float] = {}
        self._divides: dict[int, Flags] = {}
        """For each size of a mesh axis, of each distinct operator whether it divides some loop."""
        self._ends, self._other_ends = _ends(layered), _ends(other)
        # With overlap, recomputation may be faster, because collectives hide behind it.
        overlaps = any(device.hidden_collectives or device.hidden_gradient_sums for device in devices)
        comparable = not overlaps or layered.recomputed == other.recomputed
        self._fastest = known.fastest(num_microbatches) if comparable else {}
        self._seconds: dict[tuple[int, LogicalMesh], Floats] = {}
        """[first layer, last layer]"""

    def _seconds_on_mesh(self, submesh: int, mesh: LogicalMesh) -> Floats:
        """Lower bounds for all ranges of layers, [first layer, last layer]."""
        if (submesh, mesh) not in self._seconds:
            ends, other_ends = self._ends, self._other_ends
            share, once = self._shares(mesh)
            seconds = share[ends[1:]][None, :] - share[ends[:-1]][:, None]
            if (submesh, mesh) in self._fastest:
                # For every layer: the first layer of the other layering that starts at or after its start, and the
                # last that ends at or before its end.
                begin = [bisect_left(other_ends, at) for at in ends[:-1]]
                end = [bisect_right(other_ends, at) - 1 for at in ends[1:]]
                gain = self._gain(self._fastest[submesh, mesh], mesh, share, once)
                seconds += np.maximum(gain[begin][:, end], 0.0)
            self._seconds[submesh, mesh] = seconds
        return self._seconds[submesh, mesh]

    def _gain(self, fastest: Floats, mesh: LogicalMesh, share: Floats, once: Floats) -> Floats:
        """The most by which the costs of stages of the other layering, of layers inside a range of its layers, raise
        the bound of that range above its share."""
        other_ends = self._other_ends
        apart, twice = (sums[other_ends][None, :] - sums[other_ends][:, None] for sums in (share, once))
        up, down = (
            np.array([sum(_completion(t, mesh) for t in tensors) for tensors in side]) for side in self._leaving
        )
        priced = np.isfinite(fastest)
        seconds = np.where(priced, fastest, 0.0)
        inside = self._entering.seconds(mesh)
        least = seconds * (1 - ENVELOPE) - up[None, 1:] - down[:-1, None] - inside - apart[:-1, 1:]
        least = np.where(twice[:-1, 1:] == 0, least, (least - twice[:-1, 1:]) / 2)
        gain = np.zeros(apart.shape)
        gain[:-1, 1:] = np.where(priced, least, 0.0)
        # The largest gain of any run of whole layers inside: over later beginnings and earlier ends.
        return np.asarray(np.maximum.accumulate(np.maximum.accumulate(gain, axis=1)[::-1], axis=0)[::-1])

    @cached_property
    def _leaving(self) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
        """The tensors that cross each end of a layer of the other layering."""
        return _leaving(self.layered, self._other_ends)

    @cached_property
    def _entering(self) -> EnteringSums:
        return EnteringSums(self.other)

    def seconds(self, first: int, last: int, submesh: int, mesh: LogicalMesh) -> float:
        """A lower bound on the seconds of every choice for layers first..last."""
        return float(self._seconds_on_mesh(submesh, mesh)[first, last])

    def most_held(self, first: int, last: int, submesh: int) -> float:
        """An upper bound on the microbatches that layers first..last can hold, in any sharding; below 0 where their
        weights do not fit."""
        weights, held = self._bytes[first, last]
        on = self.submeshes[submesh]
        room = self._memory_of(on) * on.devices - weights
        return room / held if held else math.copysign(math.inf, room)

    def divided(self, submesh: int) -> float:
        """The share of the FLOPs of all devices of a submesh that is not lost to axes that divide nothing, on the
        logical mesh where it is largest."""
        _, numbers, times, _ = self._work
        flops = np.array([o.flops for o in self._distinct])[numbers] * times
        return max(
            float(flops.sum() / (flops * mesh.devices / self._dividing(mesh)[numbers]).sum())
            for mesh in self.meshes[submesh]
        )

    def _shares(self, mesh: LogicalMesh) -> tuple[Floats, Floats]:
        """Two prefix sums over the forward operators, each with its backward operators: the shares of all of them, and
        the shares of those that the other layering computes twice and this one once."""
        places, numbers, times, once = self._work
        least = [self._seconds_on(n, d, mesh) for n, d in enumerate(self._dividing(mesh).tolist())]
        seconds = np.array(least)[numbers]
        count = len(self.layered.graph.forward_operators) + 1
        share, twice = (np.bincount(places, seconds * n, minlength=count).cumsum() for n in (times, once))
        return share, twice

    def _seconds_on(self, number: int, dividing: int, mesh: LogicalMesh) -> float:
        """The least seconds of a distinct operator of which so many devices divide the FLOPs."""
        key = number, dividing, mesh.devices, mesh.kind
        if key not in self._least:
            whole = self._kernels[number]
            shard = replace(whole, flops=whole.flops / dividing, bytes_accessed=whole.bytes_accessed / mesh.devices)
            self._least[key] = least_seconds(self.devices[mesh.kind], shard)
        return self._least[key]

    def _dividing(self, mesh: LogicalMesh) -> Ints:
        """For each distinct operator how many devices divide its FLOPs at most."""
        found = np.ones(len(self._distinct), dtype=np.int64)
        for size in mesh.shape:
            if size not in self._divides:
                sizes = [
                    {s.size for s in splits_for(o, self.layered.graph.tensors).splits if s.divides}
                    for o in self._distinct
                ]
                self._divides[size] = np.array([any(n % size == 0 for n in of_one) for of_one in sizes])
            found *= np.where(self._divides[size], size, 1)
        return found

    @cached_property
    def _kernels(self) -> list[Kernel]:
        """Each distinct operator on one device."""
        tensors, kernels = self.layered.graph.tensors, []
        for operator in self._distinct:
            inputs, outputs = ([tensors[t] for t in side] for side in (operator.inputs, operator.outputs))
            heavy = splits_for(operator, tensors).heavy
            kernels.append(
                Kernel(
                    flops=operator.flops,
                    bytes_accessed=operator.bytes_accessed,
                    dtype=kernel_dtype(operator, inputs, outputs),
                    matrix=heavy,
                    kind=kernel_kind(operator, heavy),
                    steps=steps_in_sequence(operator.kind, inputs),
                )
            )
        return kernels

    @cached_property
    def _distinct(self) -> list[Operator]:
        """One operator of every signature."""
        graph = self.layered.graph
        of = {id(signature): operator for operator, signature in zip(graph.operators, graph.signatures, strict=True)}
        return list(of.values())

    @cached_property
    def _work(self) -> tuple[Ints, Ints, Ints, Ints]:
        """For every operator that runs for each microbatch: its position + 1, its place in `_distinct`, how often it
        runs, and how much more often in the other layering."""
        graph, twice, other = self.layered.graph, self.layered.recomputed, self.other.recomputed
        numbers = {id(graph.signatures[o.index]): number for number, o in enumerate(self._distinct)}
        rows = [
            (
                _position(o) + 1,
                numbers[id(signature)],
                1 + (o.index in twice),
                o.index in other and o.index not in twice,
            )
            for o, signature in zip(graph.operators, graph.signatures, strict=True)
            if o.phase is not Phase.UPDATE
        ]
        places, distinct, times, once = np.array(rows, dtype=np.int64).T
        return places, distinct, times, once


def _leaving(layered: LayeredGraph, ends: Sequence[int]) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
    """For each of `ends`, as positions of forward operators: the tensors produced before it and read after it, and
    those produced after it and read before it."""
    graph = layered.graph
    up: list[list[Tensor]] = [[] for _ in ends]
    down: list[list[Tensor]] = [[] for _ in ends]
    for operator in graph.operators:
        if operator.phase is Phase.UPDATE:
            continue
        at = _position(operator)
        for tensor in operator.outputs:
            readers = [graph.operators[r] for r in graph.readers.get(tensor, ())]
            places = [_position(r) for r in readers if r.phase is not Phase.UPDATE]
            low, high = min((at, *places)), max((at, *places))
            if tensor == graph.loss:
                high = ends[-1]
            for i in range(bisect_right(ends, at), bisect_right(ends, high)):
                up[i].append(graph.tensors[tensor])
            for i in range(bisect_right(ends, low), bisect_right(ends, at)):
                down[i].append(graph.tensors[tensor])
    return up, down


def _completion(tensor: Tensor, mesh: LogicalMesh) -> float:
    """An upper bound on the seconds of the cheapest completion of a pending sum."""
    axes = mesh.axes
    dims = sum(size % mesh.devices == 0 for size in tensor.shape)
    if dims < len(axes):
        return sum(axis_seconds(StepKind.ALL_REDUCE, tensor.bytes, mesh, axis) for axis in axes)
    # Every axis has a dim of its own: reduce-scatter over one axis after the other, each on the result of the last.
    totals = []
    for order in permutations(axes):
        left, seconds = float(tensor.bytes), 0.0
        for axis in order:
            seconds += axis_seconds(StepKind.REDUCE_SCATTER, left, mesh, axis)
            left /= mesh.shape[axis]
        totals.append(seconds)
    return min(totals)


def _position(operator: Operator) -> int:
    """The index of a forward operator; for a backward operator, that of its forward operator."""
    if operator.phase is Phase.FORWARD:
        return operator.index
    assert operator.forward is not None, "backward operators know their forward operator"
    return operator.forward


def _ends(layered: LayeredGraph) -> list[int]:
    """The index of the first forward operator of each layer, and the number of forward operators."""
    layers = [layered.layer_of[o.index] for o in layered.graph.forward_operators]
    return [0, *(i for i in range(1, len(layers)) if layers[i] != layers[i - 1]), len(layers)]
