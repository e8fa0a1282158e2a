"""Chains of block tables, and those whose distant blocks share nodes: the least cost is that of all choices."""

from dataclasses import dataclass
from itertools import pairwise, product
from typing import cast

import numpy as np
import pytest

from alpa_explore.intra_op.composition.block_tables import BlockTable, DirectedTable
from alpa_explore.intra_op.composition.min_plus_products import PrefixCosts, best_states_with_shared_nodes
from alpa_explore.numerics.arrays import Floats


@dataclass(eq=False)
class _Table:
    """Costs [prices, shared states, left, right], as those of a `BlockTable`."""

    shared_costs: Floats

    def directed(self, direction: int) -> DirectedTable:
        costs = self.shared_costs[:, 0]
        return DirectedTable(np.ascontiguousarray(costs if direction > 0 else costs.transpose(0, 2, 1)))


def _least(tables: list[_Table], price: int) -> float:
    """Over every state of the shared nodes and of all separators."""
    shared = max(t.shared_costs.shape[1] for t in tables)
    separators = [range(t.shared_costs.shape[3]) for t in tables]
    least = np.inf
    for t, states in product(range(shared), product(*separators)):
        least = min(least, _cost(tables, price, t, (0, *states)))
    return least


def _cost(tables: list[_Table], price: int, shared: int, states: tuple[int, ...]) -> float:
    total = 0.0
    for table, left, right in zip(tables, states, states[1:], strict=False):
        of_shared = table.shared_costs[price]
        total += float(of_shared[shared if len(of_shared) > 1 else 0, left, right])
    return total


@pytest.mark.parametrize("forbidden", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("seed", range(8))
def test_the_least_cost_is_that_of_all_choices(seed: int, forbidden: float) -> None:
    draw = np.random.default_rng(seed)
    sizes = [1, 3, 4, 3, 2, 1]
    shared = [5, 1, 1, 5, 5] if seed % 2 else [5, 1, 1, 1, 5]
    tables = []
    for left, right, states in zip(sizes, sizes[1:], shared, strict=False):
        costs = draw.integers(0, 6, (2, states, left, right)) + draw.random((2, states, left, right)) * (seed % 3)
        costs[draw.random(costs.shape) < forbidden] = np.inf
        tables.append(_Table(costs))
    best = best_states_with_shared_nodes(cast("list[BlockTable]", tables))
    for p in range(2):
        least = _least(tables, p)
        assert best.costs[p] == pytest.approx(least, rel=1e-12) or best.costs[p] == least == np.inf
        if least < np.inf:
            states = tuple(best.states[p].tolist())
            assert _cost(tables, p, int(best.shared_states[p]), states) == pytest.approx(least, rel=1e-12)


@pytest.mark.parametrize("direction", [1, -1])
@pytest.mark.parametrize("seed", range(4))
def test_the_states_of_a_chain_attain_its_least_cost_from_either_end(seed: int, direction: int) -> None:
    draw = np.random.default_rng(seed)
    sizes = [1, 3, 4, 2, 1]
    tables = [_Table(draw.random((2, 1, left, right))) for left, right in pairwise(sizes)]
    prefix = PrefixCosts(2, direction)
    for table in tables[::direction]:
        prefix = prefix.extended(cast(BlockTable, table))
    best = prefix.best_states()
    for p in range(2):
        assert best.costs[p] == pytest.approx(_least(tables, p))
        assert _cost(tables, p, 0, tuple(best.states[p].tolist())) == pytest.approx(_least(tables, p))
