"""Cost tables: an array of costs over the strategies of a few nodes, and sums of such arrays.

In here a forbidden entry is `inf`: tables are only added and minimised, so that inf − inf cannot arise and no precision
is lost to 1e18.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN
from alpa_explore.numerics.arrays import Floats

Scope: TypeAlias = tuple[int, ...]
"""The nodes that a table reads, ascending: one array axis each."""
Table: TypeAlias = tuple[Scope, Floats]


def without_forbidden(costs: Floats) -> Floats:
    """The costs with every forbidden entry as inf."""
    # Most tables hold none, and need no copy.
    return np.where(costs >= FORBIDDEN, np.inf, costs) if costs.size and costs.max() >= FORBIDDEN else costs


def sum_tables(tables: Sequence[Table], axes: Scope, sizes: Sequence[int] | None = None) -> Floats:
    """The sum of `tables` as an array with the nodes `axes` in that order.

    An axis that no table reads has length 1, or its length in `sizes` where that is given.
    """
    total: Floats = np.zeros(sizes if sizes is not None else (1,) * len(axes))
    for scope, table in tables:
        shape = [1] * len(axes)
        places = [axes.index(u) for u in scope]
        for place, size in zip(places, np.shape(table), strict=True):
            shape[place] = size
        # A scope is ascending, `axes` need not be: the node to be eliminated often comes first.
        ordered = table if places == sorted(places) else np.transpose(table, np.argsort(places))
        total = total + ordered.reshape(shape)
    return total
