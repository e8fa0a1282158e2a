"""Operators -> layers: Eq. 6 of the specification, or boundaries set by hand."""

from alpa_explore.layering.crossing import Crossing, crossing_bytes, crossings_of
from alpa_explore.layering.dp import cluster_operators
from alpa_explore.layering.layers import Layer, Layering
from alpa_explore.layering.manual import manual_layers

__all__ = [
    "Crossing",
    "Layer",
    "Layering",
    "cluster_operators",
    "crossing_bytes",
    "crossings_of",
    "manual_layers",
]
