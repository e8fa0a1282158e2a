"""Layering: the forward operators clustered into layers, by Eq. 6 of Alpa (arXiv 2201.12023, §5.2) or by hand.

A layer is a run of forward operators; stages are runs of layers. In the order to read them:

    crossing    the tensors that cross a cut between layers, and C(i, k) of Eq. 6
    layers      Layer and Layering, the result; boundaries given by positions, names or modules
    balance     the FLOP limit that follows from delta, and the smallest feasible delta
    limbs       exact sums of squared FLOPs, for the tie-break
    dp          `cluster_operators`: the dynamic program of Eq. 6
    blocks      the repeated blocks of a model, where layers naturally begin; the block of every forward operator

It imports `graph`, `errors` and `numerics`.

Concepts that others use: Clustering, Crossing, Layering.
"""

from alpa_explore.layering.crossing import Crossing, crossing_bytes, crossings_of
from alpa_explore.layering.dp import cluster_operators
from alpa_explore.layering.layers import Layer, Layering, manual_layers

__all__ = ["Crossing", "Layer", "Layering", "cluster_operators", "crossing_bytes", "crossings_of", "manual_layers"]
