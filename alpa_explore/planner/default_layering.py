"""The layers of a graph where the user gives no number of layers."""

from __future__ import annotations

from contextlib import suppress

from alpa_explore.errors import LayeringError
from alpa_explore.graph import TrainingGraph
from alpa_explore.layering import Layering, cluster_operators
from alpa_explore.models.catalog import entry, is_reference

_LAYERS = 8


def default_layering(graph: TrainingGraph, delta: float) -> Layering:
    """Layers in the number of the catalogue for a catalogue model, else 8; fewer where so many cannot be balanced."""
    most = entry(graph.recipe).num_layers if graph.recipe is not None and is_reference(graph.recipe) else _LAYERS
    for layers in range(min(most, sum(1 for o in graph.forward_operators if o.flops > 0)), 1, -1):
        with suppress(LayeringError):
            return cluster_operators(graph, layers, delta=delta)
    return cluster_operators(graph, 1, delta=delta)
