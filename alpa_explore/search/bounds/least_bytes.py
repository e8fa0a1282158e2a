"""Lower bounds on the bytes that a range of layers holds on all its devices together, in any sharding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations_with_replacement

from alpa_explore.cluster import Software
from alpa_explore.cost.plain_kernels import as_software_updates
from alpa_explore.graph import GIVEN_KINDS, Phase, TrainingGraph
from alpa_explore.intra_op.stage.layered_graph import UPDATE_LAYER, LayeredGraph, assign_layers
from alpa_explore.units import DTYPE_BYTES

Range = tuple[int, int]
"""(first, last) layer."""
LayerBytes = Mapping[frozenset[int], float]
"""Bytes by the set of layers that hold them; a stage holds them if it has one of these layers."""


def least_weight_bytes(graph: TrainingGraph, software: Software) -> float:
    """A lower bound on the bytes of weights (frozen ones and buffers, too), gradients and optimizer states on all
    devices, in any plan of this software at any B."""
    graph = as_software_updates(graph, software)
    return _held_by(_weights(assign_layers(graph, (0,) * len(graph.forward_operators)), software), (0, 0))


def least_bytes(layered: LayeredGraph, software: Software) -> dict[Range, tuple[float, float]]:
    """For every layer range: (bytes of weights, frozen ones and buffers too, gradients and optimizer states; bytes
    held for one microbatch)."""
    weights, activations = _weights(layered, software), _activations(layered)
    ranges = combinations_with_replacement(range(layered.num_layers), 2)
    return {layers: (_held_by(weights, layers), _held_by(activations, layers)) for layers in ranges}


def _weights(layered: LayeredGraph, software: Software) -> LayerBytes:
    """Weights with their gradients, as the software adds them up, and optimizer states; frozen weights, buffers and
    constants."""
    graph = layered.graph
    sizes: dict[frozenset[int], float] = defaultdict(float)
    for parameter, gradients in zip(graph.parameters, layered.contributions, strict=True):
        weight = graph.tensors[parameter.tensor]
        readers = [graph.operators[r] for r in graph.readers.get(parameter.tensor, ())]
        sizes[frozenset(layered.layer_of[r.index] for r in readers if r.phase is not Phase.UPDATE)] += weight.bytes
        producers = [graph.tensors[t].producer for t in gradients]
        layers = frozenset(layered.layer_of[p] for p in producers if p is not None and layered.layer_of[p] >= 0)
        sizes[layers] += weight.elements * parameter.state_bytes_per_element
        if gradients:
            gradient = graph.tensors[gradients[0]]
            element = software.gradient_element_bytes(gradient.dtype, DTYPE_BYTES[gradient.dtype])
            sizes[layers] += gradient.elements * element
    for tensor in graph.tensors:
        if tensor.kind in GIVEN_KINDS and tensor.index in graph.readers:
            sizes[frozenset(layered.layer_of[r] for r in graph.readers[tensor.index]) - {UPDATE_LAYER}] += tensor.bytes
    return sizes


def _activations(layered: LayeredGraph) -> LayerBytes:
    """The activations that are held for one microbatch."""
    # A tensor from outside of which the stage reads only views is left out, though it holds these: a lower bound.
    touching: dict[int, set[int]] = defaultdict(set)
    for operator in layered.graph.operators:
        for tensor in (*operator.inputs, *operator.outputs):
            touching[tensor].add(layered.layer_of[operator.index])
    layers_of: dict[int, set[int]] = defaultdict(set)
    for layer, tensors in enumerate(layered.held):
        for tensor in tensors:
            if layer in touching[tensor]:
                layers_of[tensor].add(layer)
    sizes: dict[frozenset[int], float] = defaultdict(float)
    for tensor, layers in layers_of.items():
        sizes[frozenset(layers)] += layered.graph.tensors[tensor].bytes
    return sizes


def _held_by(sizes: LayerBytes, layers: Range) -> float:
    first, last = layers
    return sum(size for holders, size in sizes.items() if any(first <= layer <= last for layer in holders))
