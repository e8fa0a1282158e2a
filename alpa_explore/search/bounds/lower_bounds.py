"""Lower bounds on stage costs without a solve: from FLOPs and bytes.

On n devices an operator takes at least the time of 1/n of its FLOPs and bytes. An axis of a logical mesh that divides
no loop of the operator divides none of its FLOPs: on 3 nodes, a product whose sizes are powers of two runs as on one. A
stage takes at least the sum over its operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from alpa_explore.cluster import Device, LogicalMesh, Submesh
from alpa_explore.cost.compute import least_seconds
from alpa_explore.cost.kernels import Kernel, most_efficient_sizes
from alpa_explore.cost.model import whole_kernel
from alpa_explore.graph import Operator
from alpa_explore.intra_op.stage.layered_graph import UPDATE_LAYER, LayeredGraph
from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.search.bounds.least_bytes import least_bytes
from alpa_explore.sharding.splits import splits_for


class LowerBounds:
    """Lower bounds for the stages of `layered`. `devices` are those of each kind of nodes: one where all are alike."""

    def __init__(self, layered: LayeredGraph, devices: Sequence[Device]) -> None:
        self.layered, self.devices = layered, devices
        self.least_bytes = least_bytes(layered, devices[0].software)
        """Of every layer range, as that has it."""
        self._least: dict[tuple[bytes, int, int], Floats] = {}
        self._shares: dict[LogicalMesh, Floats] = {}
        """The least seconds of the layers before each one, and of all."""

    def seconds(self, first: int, last: int, mesh: LogicalMesh) -> float:
        """A lower bound on the seconds of every choice for layers first..last."""
        if mesh not in self._shares:
            layers, numbers, times = self._work
            by_layer = np.bincount(layers, self._least_on(mesh)[numbers] * times, minlength=self.layered.num_layers)
            self._shares[mesh] = np.concatenate([np.zeros(1), by_layer.cumsum()])
        share = self._shares[mesh]
        return float(share[last + 1] - share[first])

    def most_held(self, first: int, last: int, on: Submesh) -> float:
        """An upper bound on the microbatches that layers first..last can hold, in any sharding; below 0 where their
        weights do not fit."""
        weights, held = self.least_bytes[first, last]
        room = self.devices[on.kind].offered_bytes * on.devices - weights
        return room / held if held else math.copysign(math.inf, room)

    def over_bytes(self, first: int, last: int, on: Submesh, held: float) -> float:
        """By how much more than it has a device of layers first..last needs at least with so many microbatches held."""
        weights, activations = self.least_bytes[first, last]
        return (weights + held * activations) / on.devices - self.devices[on.kind].offered_bytes

    def divided(self, meshes: Sequence[LogicalMesh]) -> float:
        """The share of the FLOPs of all devices of a submesh that is not lost to axes that divide nothing, on that of
        its logical meshes where it is largest."""
        _, numbers, times = self._work
        flops = np.array([o.flops for o in self._distinct])[numbers] * times
        return max(float(flops.sum() / (flops * mesh.devices / self._dividing(mesh)[numbers]).sum()) for mesh in meshes)

    def _least_on(self, mesh: LogicalMesh) -> Floats:
        """The least seconds of each distinct operator."""
        dividing = self._dividing(mesh)
        key = dividing.tobytes(), mesh.devices, mesh.kind
        if key not in self._least:
            shards = [
                replace(whole, flops=whole.flops / share, bytes_accessed=whole.bytes_accessed / mesh.devices)
                for whole, share in zip(self._kernels, dividing.tolist(), strict=True)
            ]
            self._least[key] = least_seconds(self.devices[mesh.kind], shards)
        return self._least[key]

    def _dividing(self, mesh: LogicalMesh) -> Ints:
        """For each distinct operator how many devices divide its FLOPs at most."""
        most = [
            math.prod(size for size in mesh.shape if any(loop % size == 0 for loop in loops)) for loops in self._loops
        ]
        return np.array(most, dtype=np.int64)

    @cached_property
    def _loops(self) -> list[set[int]]:
        """Of each distinct operator the sizes of the loops that a mesh axis may divide."""
        tensors = self.layered.graph.tensors
        return [{split.size for split in splits_for(o, tensors).splits if split.divides} for o in self._distinct]

    @cached_property
    def _kernels(self) -> list[Kernel]:
        """Each distinct operator on one device, at the rate of the most efficient one that does a part of it."""
        wholes = [whole_kernel(operator, self.layered.graph.tensors) for operator in self._distinct]
        return [replace(whole, sizes=most_efficient_sizes(whole)) for whole in wholes]

    @cached_property
    def _distinct(self) -> list[Operator]:
        """One operator of every signature."""
        graph = self.layered.graph
        of = {id(signature): operator for operator, signature in zip(graph.operators, graph.signatures, strict=True)}
        return list(of.values())

    @cached_property
    def _work(self) -> tuple[Ints, Ints, Ints]:
        """For every operator that runs for each microbatch: its layer, its place in `_distinct`, how often it runs."""
        graph, layered = self.layered.graph, self.layered
        numbers = {id(graph.signatures[o.index]): number for number, o in enumerate(self._distinct)}
        rows = [
            (layered.layer_of[o.index], numbers[id(signature)], 1 + (o.index in layered.recomputed))
            for o, signature in zip(graph.operators, graph.signatures, strict=True)
            if layered.layer_of[o.index] != UPDATE_LAYER
        ]
        layers, distinct, times = np.array(rows, dtype=np.int64).T
        return layers, distinct, times
