"""A problem at several prices, which a contraction begins with, and its form: sizes, edges, and where its costs lie in
memory, but not the costs themselves.

All tables of a contraction lie in one array, each in one of five spaces:

    COMMON          entries that no price changes, stored once
    PRICED          entries that a price changes, stored once for each price
    COMMON_SCRATCH  as COMMON, but not read by backtracking
    SCRATCH         needed at one price only until another table is made of it; each price overwrites the last
    RESULT          the table over the kept nodes, once for each price
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from alpa_explore.intra_op.reduction.factor_graph import without_forbidden
from alpa_explore.numerics.arrays import Floats, Ints, starts

COMMON, PRICED, COMMON_SCRATCH, SCRATCH, RESULT = SPACES = range(5)
FREE = -1
"""In place of the space of a node that costs nothing."""


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

    @classmethod
    def of(cls, sizes: Sequence[int], edges: Sequence[tuple[int, int]], spaces: Sequence[int] | Ints) -> ProblemForm:
        """Of nodes, then edges, whose costs lie in these `spaces` one after the other; FREE where there are none."""
        lengths = np.array([*sizes, *(sizes[a] * sizes[b] for a, b in edges)], dtype=np.int64)
        spaces = np.asarray(spaces, dtype=np.int64)
        offsets, entries = np.zeros_like(lengths), {}
        for space in (COMMON, PRICED):
            of_space = np.where(spaces == space, lengths, 0)
            offsets += np.where(spaces == space, starts(of_space), 0)
            entries[space] = int(of_space.sum())
        located = zip(spaces.tolist(), offsets.tolist(), strict=True)
        locations = [None if space == FREE else CostLocation(space, offset) for space, offset in located]
        return cls(
            sizes=tuple(sizes),
            edges=tuple(edges),
            node_locations=tuple(locations[: len(sizes)]),
            edge_locations=tuple(location for location in locations[len(sizes) :] if location is not None),
            common_entries=entries[COMMON],
            priced_entries=entries[PRICED],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PricedProblem:
    """A problem at several prices: its costs one after the other, laid out by `form`; inf where forbidden."""

    form: ProblemForm
    common_costs: Floats
    """[entries]: costs that no price changes."""
    priced_costs: Floats
    """[prices, entries]"""

    @classmethod
    def of(
        cls, node_costs: Sequence[Floats], edges: Sequence[tuple[int, int]], edge_costs: Sequence[Floats], prices: int
    ) -> PricedProblem:
        """From an array for every node and edge whose first axis is the price, of length 1 where the price makes no
        difference."""
        arrays = [without_forbidden(c).reshape(len(c), -1) for c in (*node_costs, *edge_costs)]
        spaces = [COMMON if len(array) == 1 else PRICED for array in arrays]
        form = ProblemForm.of([c.shape[1] for c in node_costs], edges, spaces)
        located = list(zip(arrays, spaces, strict=True))
        priced = [np.zeros((prices, 0)), *(array for array, space in located if space == PRICED)]
        common = [np.zeros(0), *(array[0] for array, space in located if space == COMMON)]
        return cls(form=form, common_costs=np.concatenate(common), priced_costs=np.concatenate(priced, axis=1))
