"""A problem at several prices: what a contraction begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.composition.contraction.problem_form import COMMON, PRICED, CostLocation, ProblemForm
from alpa_explore.intra_op.reduction.tables import without_forbidden
from alpa_explore.numerics.arrays import Floats


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
        entries = {COMMON: 0, PRICED: 0}
        locations = []
        for array in arrays:
            space = COMMON if len(array) == 1 else PRICED
            locations.append(CostLocation(space, entries[space]))
            entries[space] += array.shape[1]
        form = ProblemForm(
            sizes=tuple(c.shape[1] for c in node_costs),
            edges=tuple(edges),
            node_locations=tuple(locations[: len(node_costs)]),
            edge_locations=tuple(locations[len(node_costs) :]),
            common_entries=entries[COMMON],
            priced_entries=entries[PRICED],
        )
        located = list(zip(arrays, locations, strict=True))
        priced = [np.zeros((prices, 0)), *(a for a, location in located if location.space == PRICED)]
        common = [np.zeros(0), *(a[0] for a, location in located if location.space == COMMON)]
        return cls(form=form, common_costs=np.concatenate(common), priced_costs=np.concatenate(priced, axis=1))
