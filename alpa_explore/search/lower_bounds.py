"""What stages take at least, without a solve: from shares of work, and from the stage costs of other layers of the same
graph.

On n devices no operator takes less than a share 1/n of its FLOPs and bytes does. A stage R that holds whole layers of
the other layering, the stage r, restricts its choice to r, so with the rest of R paid by shares

    cost(R)  ≥  cost(r) − slack(r) + share(R − r)

What r pays and its part of R does not is the slack. Tensors that leave r leave without a pending sum, and inside R they
may keep it: that is the cheapest way to complete one. (Where it is completed at its own size behind r, as a residual
stream is, R pays for that as well, and the slack is more than is needed.) Tensors that enter r do so without one too,
and inside R they may add theirs to what is pending in r: `entering_sums` says what that takes at most. And what r
computes twice R may compute once (layers decide what is rematerialised): operators D, on which R spends x in all. R
also takes x and the shares of all but D, so whatever x

    cost(R)  ≥  share(R) + ( cost(r) − slack(r) − share(r) − share(D) ) / 2
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations_with_replacement, permutations

import numpy as np

from alpa_explore.cluster import Device, LogicalMesh
from alpa_explore.cost.collectives import collective_seconds
from alpa_explore.cost.compute import Kernel, least_seconds
from alpa_explore.graph import Operator, Phase, Tensor, TrainingGraph
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph, assign_layers
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.pricing.stage_costs import StageCosts
from alpa_explore.pricing.tuning import TOLERANCE
from alpa_explore.search.entering_sums import EnteringSums
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.splits import splits_for

ENVELOPE = 2 * TOLERANCE
"""How far above the least seconds at any B the known candidates of a problem may be (`envelope.corner_between`)."""


class Least:
    """Bounds for the stages of `layered` on the submeshes of `known`, which has the costs of the stages of `other`."""

    def __init__(
        self,
        layered: LayeredGraph,
        device: Device,
        meshes: Sequence[Sequence[LogicalMesh]],
        *,
        other: LayeredGraph,
        known: StageCosts,
        num_microbatches: int,
    ) -> None:
        self.layered, self.other, self.device, self.meshes = layered, other, device, meshes
        self.submeshes, self.memory_bytes = known.submeshes, known.device_memory_bytes
        weights, held = _weights(layered), _held(layered)
        self._bytes = {
            r: (_touched(weights, *r), _touched(held, *r))
            for r in combinations_with_replacement(range(layered.num_layers), 2)
        }
        """Of weights, and held of a microbatch, by (first, last) layer."""
        ends, other_ends = _ends(layered), _ends(other)
        # Where more hides what is computed twice, the layers that compute it twice may be the faster ones.
        hides = device.collective_overlap or device.gradient_overlap
        alike = not hides or layered.recomputed == other.recomputed
        found = known.fastest(num_microbatches) if alike else {}
        shares = {n: self._shares(n) for n in {piece.devices for piece in self.submeshes}}
        leaving, entering = _leaving(layered, other_ends), EnteringSums(other)
        # Of every layer the first whole layer of the other layering from its start on, and the last up to its end.
        begin = [bisect_left(other_ends, at) for at in ends[:-1]]
        end = [bisect_right(other_ends, at) - 1 for at in ends[1:]]
        self._seconds: dict[tuple[int, LogicalMesh], Floats] = {}
        """[first layer, last layer]"""
        for index, (piece, here) in enumerate(zip(self.submeshes, meshes, strict=True)):
            share, once = shares[piece.devices]
            whole = share[ends[1:]][None, :] - share[ends[:-1]][:, None]
            apart, twice = (sums[other_ends][None, :] - sums[other_ends][:, None] for sums in (share, once))
            for mesh in here:
                up, down = (np.array([sum(_completion(t, mesh) for t in here) for here in side]) for side in leaving)
                gain = np.zeros(apart.shape)
                if (index, mesh) in found:
                    inside = entering.seconds(mesh)
                    known_here = np.isfinite(found[index, mesh])
                    seconds = np.where(known_here, found[index, mesh], 0.0)
                    least = seconds * (1 - ENVELOPE) - up[None, 1:] - down[:-1, None] - inside - apart[:-1, 1:]
                    least = np.where(twice[:-1, 1:] == 0, least, (least - twice[:-1, 1:]) / 2)
                    gain[:-1, 1:] = np.where(known_here, least, 0.0)
                # The most that any run of whole layers inside adds: over later beginnings and earlier ends.
                gain = np.maximum.accumulate(np.maximum.accumulate(gain, axis=1)[::-1], axis=0)[::-1]
                self._seconds[index, mesh] = whole + np.maximum(gain[begin][:, end], 0.0)

    def seconds(self, first: int, last: int, submesh: int, mesh: LogicalMesh) -> float:
        """That no choice of layers first..last is below."""
        return float(self._seconds[submesh, mesh][first, last])

    def most_held(self, first: int, last: int, submesh: int) -> float:
        """More microbatches than this do not fit beside layers first..last, however they are divided; below 0 where
        their weights do not."""
        weights, held = self._bytes[first, last]
        room = self.memory_bytes * self.submeshes[submesh].devices - weights
        return room / held if held else math.copysign(math.inf, room)

    def _shares(self, devices: int) -> tuple[Floats, Floats]:
        """Sums over the forward operators before each, with what belongs to them in the backward pass; and of those
        that the other layers compute twice and these do not."""
        graph = self.layered.graph
        known: dict[int, float] = {}
        for signature, operator in self._distinct.items():
            kernel = Kernel(
                flops=operator.flops / devices,
                bytes_accessed=operator.bytes_accessed / devices,
                dtype=graph.tensors[(*operator.outputs, *operator.inputs)[0]].dtype,
                matrix=splits_for(operator, graph.tensors).heavy,
            )
            known[signature] = least_seconds(self.device, kernel)
        places, signatures, times, once = self._work
        seconds = np.array([known[signature] for signature in signatures])
        count = len(graph.forward_operators) + 1
        share, twice = (np.bincount(places, seconds * n, minlength=count).cumsum() for n in (times, once))
        return share, twice

    @cached_property
    def _distinct(self) -> dict[int, Operator]:
        """One operator of every signature."""
        graph = self.layered.graph
        return {id(signature): operator for operator, signature in zip(graph.operators, graph.signatures, strict=True)}

    @cached_property
    def _work(self) -> tuple[Ints, list[int], Ints, Ints]:
        """Of every operator that runs each microbatch: one more than its place, its signature, how often it runs, and
        how much more often it does in the other layers."""
        graph, own, other = self.layered.graph, self.layered.recomputed, self.other.recomputed
        rows = [
            (_position(o) + 1, id(signature), 1 + (o.index in own), o.index in other and o.index not in own)
            for o, signature in zip(graph.operators, graph.signatures, strict=True)
            if o.phase is not Phase.UPDATE
        ]
        places, signatures, times, once = zip(*rows, strict=True)
        return np.array(places), list(signatures), np.array(times), np.array(once, dtype=np.int64)


def _leaving(layered: LayeredGraph, ends: Sequence[int]) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
    """For each of `ends` the tensors that are made before it and read behind it, and those the other way."""
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
    """What the cheapest way takes at most that leaves a tensor without a pending sum."""
    axes = [
        (size, b, a) for size, b, a in zip(mesh.shape, mesh.bandwidth, mesh.latency_seconds, strict=True) if size > 1
    ]
    dims = sum(size % mesh.devices == 0 for size in tensor.shape)
    if dims < len(axes):
        return sum(collective_seconds(StepKind.ALL_REDUCE, tensor.bytes, *axis) for axis in axes)
    # Every axis has a dim of its own: one after the other is scattered, or sliced, and less is left for the next.
    ways = []
    for order in permutations(axes):
        left, seconds = float(tensor.bytes), 0.0
        for axis in order:
            seconds += collective_seconds(StepKind.REDUCE_SCATTER, left, *axis)
            left /= axis[0]
        ways.append(seconds)
    return min(ways)


def _position(operator: Operator) -> int:
    """The place of a forward operator, or of that which a backward operator belongs to."""
    if operator.phase is Phase.FORWARD:
        return operator.index
    assert operator.forward is not None, "backward operators know their forward operator"
    return operator.forward


def _ends(layered: LayeredGraph) -> list[int]:
    """Where each layer begins, as a forward operator, and where the last one ends."""
    layers = [layered.layer_of[o.index] for o in layered.graph.forward_operators]
    return [0, *(i for i in range(1, len(layers)) if layers[i] != layers[i - 1]), len(layers)]


Touching = Mapping[frozenset[int], float]
"""Bytes by the layers that touch them."""


def least_weight_bytes(graph: TrainingGraph) -> float:
    """Of weights, gradients and optimizer states, which all devices together hold at least, whatever the plan and B."""
    return _touched(_weights(assign_layers(graph, (0,) * len(graph.forward_operators))), 0, 0)


def _weights(layered: LayeredGraph) -> Touching:
    """Weights with their gradients and optimizer states."""
    graph = layered.graph
    found: dict[frozenset[int], float] = defaultdict(float)
    for parameter, made in zip(graph.parameters, layered.contributions, strict=True):
        weight = graph.tensors[parameter.tensor]
        reading = [graph.operators[r] for r in graph.readers.get(parameter.tensor, ())]
        found[frozenset(layered.layer_of[r.index] for r in reading if r.phase is not Phase.UPDATE)] += weight.bytes
        makers = [graph.tensors[t].producer for t in made]
        layers = frozenset(layered.layer_of[m] for m in makers if m is not None and layered.layer_of[m] >= 0)
        kept = weight.elements * parameter.state_bytes_per_element
        found[layers] += kept + (graph.tensors[made[0]].bytes if made else 0)
    return found


def _held(layered: LayeredGraph) -> Touching:
    """What is held of a microbatch."""
    # What begins outside a stage, and of which views alone are read there, has no size in it.
    touching: dict[int, set[int]] = defaultdict(set)
    for operator in layered.graph.operators:
        for tensor in (*operator.inputs, *operator.outputs):
            touching[tensor].add(layered.layer_of[operator.index])
    layers_of: dict[int, set[int]] = defaultdict(set)
    for layer, tensors in enumerate(layered.held):
        for tensor in tensors:
            if layer in touching[tensor]:
                layers_of[tensor].add(layer)
    found: dict[frozenset[int], float] = defaultdict(float)
    for tensor, layers in layers_of.items():
        found[frozenset(layers)] += layered.graph.tensors[tensor].bytes
    return found


def _touched(bytes_of: Touching, first: int, last: int) -> float:
    return sum(size for layers, size in bytes_of.items() if any(first <= layer <= last for layer in layers))
