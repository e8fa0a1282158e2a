"""Arc consistency: drop strategies without a legal partner on some edge, until every one left has one on each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from alpa_explore.numerics.arrays import Flags

Neighbour = tuple[Flags, int]
"""(legal, u): legal[i, j] is True where strategy i of a node and strategy j of its neighbour u are legal together."""


def propagate(alive: list[Flags], neighbours: Sequence[Sequence[Neighbour]], changed: Iterable[int]) -> None:
    """Clear `alive[v][i]` wherever strategy i of v has no living legal partner at some neighbour, to the fixed point.

    `neighbours[v]` need only hold the edges of v that forbid something; `changed` are the nodes to begin with. A node
    may end with no strategy at all: then the problem is infeasible.
    """
    queue = deque(changed)
    queued = set(queue)
    while queue:
        v = queue.popleft()
        queued.discard(v)
        supported = alive[v].copy()
        for legal, u in neighbours[v]:
            supported &= legal @ alive[u]
        if supported.sum() < alive[v].sum():
            alive[v] = supported
            affected = {u for _, u in neighbours[v]} - queued
            queue.extend(affected)
            queued |= affected
