"""Weights that several layers read: the pipeline pays for the sum of their gradients."""

from __future__ import annotations

from alpa_explore.graph import Phase
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph


def tied_weights(layered: LayeredGraph) -> tuple[tuple[tuple[int, ...], float], ...]:
    """(layers that make a part of its gradient, bytes of the gradient) of every weight with two such layers or more."""
    graph, tied = layered.graph, []
    for position, parameter in enumerate(graph.parameters):
        producers = [graph.tensors[t].producer for t in layered.contributions[position]]
        layers = {
            layered.layer_of[p] for p in producers if p is not None and graph.operators[p].phase is Phase.BACKWARD
        }
        if len(layers) > 1:
            tied.append((tuple(sorted(layers)), float(graph.tensors[parameter.gradient].bytes)))
    return tuple(tied)
