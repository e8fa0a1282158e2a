"""Limits of the planner. None changes a plan, except the number of layers and what a layer does at the least."""

from __future__ import annotations

FEWEST_LAYERS, MOST_LAYERS = 8, 16
"""Of the default layering. Sixteen layers of a 32-block Llama take 1.9 times the planning time of eight; the head of a
vocabulary of 128k alone does the work of two blocks, so many more layers cannot be balanced."""
LEAST_SHARE = 0.25
"""Of the mean FLOPs, in every layer: far less than one of several blocks, far more than an embedding and masks."""
FIT_SECONDS = 20.0
"""How long a larger cluster is sought on which a model fits; after that the answer is a lower bound. Set by hand."""
USUAL_NODE = 8
"""Devices of a common node: a single smaller one is enlarged to this before there are several nodes."""
MOST_NODES = 64
"""Largest number of nodes that is looked at."""
