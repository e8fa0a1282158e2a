"""Weights that several layers read (tied weights), whose gradients the pipeline must sum across stages."""

from __future__ import annotations

from alpa_explore.graph import Phase
from alpa_explore.intra_op.stage.layered_graph import LayeredGraph


def tied_weights(layered: LayeredGraph) -> tuple[tuple[tuple[int, ...], float], ...]:
    """(layers that contribute to its gradient, bytes of the gradient) of every weight with at least two such layers."""
    graph, tied = layered.graph, []
    for position, parameter in enumerate(graph.parameters):
        producers = [graph.tensors[t].producer for t in layered.contributions[position]]
        layers = {
            layered.layer_of[p] for p in producers if p is not None and graph.operators[p].phase is Phase.BACKWARD
        }
        if len(layers) > 1:
            tied.append((tuple(sorted(layers)), float(graph.tensors[parameter.gradient].bytes)))
    return tuple(tied)
