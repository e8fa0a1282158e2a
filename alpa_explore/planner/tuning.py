"""Limits of the planner. None changes a plan, except the number of layers and what a layer does at the least."""

from __future__ import annotations

FEWEST_LAYERS, MOST_LAYERS = 8, 16
"""Of the default layering, set by hand: the head of a vocabulary of 128k alone does the work of two blocks of a
32-block Llama, so that many more layers cannot be balanced, and planning time grows with their square."""
LEAST_SHARE = 0.25
"""Of the mean FLOPs, in every layer: far less than one of several blocks, far more than an embedding and masks."""
FIT_SECONDS = 20.0
"""How long a larger cluster is sought on which a model fits; after that the answer is a lower bound. Set by hand."""
USUAL_NODE = 8
"""Devices of a common node: a single smaller one is enlarged to this before there are several nodes."""
MOST_NODES = 64
"""Largest number of nodes that is looked at."""

DEVICES_WORTH_WORKERS = 128
"""On so many devices a new plan has meshes enough for worker processes to be started while the model is captured. On
fewer, they are started when the solves turn out to take long: GPT-39B on 64 devices takes 16 s of processor time in one
process and 25 s with two workers, which import and build again what its meshes share."""
