"""Limits of the planner. None changes a plan."""

from __future__ import annotations

FIT_SECONDS = 20.0
"""How long a larger cluster is sought on which a model fits; after that the answer is a lower bound. Set by hand."""
USUAL_NODE = 8
"""Devices of a common node: a single smaller one is enlarged to this before there are several nodes."""
MOST_NODES = 64
"""Largest number of nodes that is looked at."""
