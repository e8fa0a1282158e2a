"""The form of a problem: sizes, edges, and where its costs lie in memory, but not the costs themselves.

All tables of a contraction lie in one array, each in one of five spaces:

    COMMON          entries that no price changes, stored once
    PRICED          entries that a price changes, stored once for each price
    COMMON_SCRATCH  as COMMON, but not read by backtracking
    SCRATCH         needed at one price only until another table is made of it; each price overwrites the last
    RESULT          the table over the kept nodes, once for each price
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

COMMON, PRICED, COMMON_SCRATCH, SCRATCH, RESULT = SPACES = range(5)


class CostLocation(NamedTuple):
    """Where the costs of a node or an edge lie."""

    space: int
    offset: int


@dataclass(frozen=True, slots=True)
class ProblemForm:
    """All that the plan of a contraction depends on, besides the kept nodes."""

    sizes: tuple[int, ...]
    """Strategies of every node."""
    edges: tuple[tuple[int, int], ...]
    node_locations: tuple[CostLocation | None, ...]
    """None for nodes that cost nothing."""
    edge_locations: tuple[CostLocation, ...]
    common_entries: int
    """Costs that no price changes."""
    priced_entries: int
    """Costs of each price."""
    _hash: int = field(init=False, repr=False, compare=False)
    """Computed once: forms are keys of the cache of programs, and long."""

    def __post_init__(self) -> None:
        figures = self.sizes, self.edges, self.node_locations, self.edge_locations
        object.__setattr__(self, "_hash", hash((*figures, self.common_entries, self.priced_entries)))

    def __hash__(self) -> int:
        return self._hash
