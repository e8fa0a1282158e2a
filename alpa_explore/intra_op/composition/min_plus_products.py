"""Products of block tables in (min, +), and the best states of all separators by backtracking.

A chain is evaluated as a vector times tables, from one end of the stage to the other (`PrefixCosts`). Where distant
blocks share the nodes of a parameter, the tables of those blocks depend on the state t of the shared nodes too. With M
the product of the tables between them, the same for every t,

    least cost = min over t of  A_t ⊗ M ⊗ … ⊗ Z_t

and M is computed by pairing neighbours, equal pairs once: a run of n equal blocks takes about log2(n) products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from alpa_explore.intra_op.composition.block_tables import BlockTable
from alpa_explore.intra_op.composition.contraction import kernels
from alpa_explore.numerics.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BestStates:
    """The best states of the separators of one layer range, for each price."""

    tables: tuple[BlockTable, ...]
    costs: Floats
    """[prices]"""
    states: Ints
    """[prices, tables + 1]: at the left and the right of every block."""
    shared_states: Ints
    """[prices]"""


class PrefixCosts:
    """The least cost from one end of a stage to every state of a separator, with backpointers, for each price."""

    def __init__(self, prices: int, direction: int) -> None:
        self.direction = direction
        """1 from left to right, −1 from right to left."""
        self.costs: Floats = np.zeros((prices, 1))
        self.tables: tuple[BlockTable, ...] = ()
        self.backpointers: tuple[Ints, ...] = ()

    def extended(self, table: BlockTable) -> PrefixCosts:
        """With one more block."""
        longer = PrefixCosts(len(self.costs), self.direction)
        costs = table.costs if self.direction > 0 else table.transposed_costs
        assert costs.shape[1] == self.costs.shape[1], "neighbouring blocks have the same separator"
        longer.costs = np.empty((len(costs), costs.shape[2]))
        backpointers = np.empty(longer.costs.shape, dtype=np.int64)
        kernels.extend(self.costs, costs, longer.costs, backpointers)
        longer.tables, longer.backpointers = (*self.tables, table), (*self.backpointers, backpointers)
        return longer

    def best_states(self) -> BestStates:
        """Of the range that ends with the last block."""
        prices = np.arange(len(self.costs))
        states = [np.zeros_like(prices)]
        for backpointers in reversed(self.backpointers):
            states.append(backpointers[prices, states[-1]])
        order = states[:: -self.direction]
        return BestStates(
            tables=self.tables[:: self.direction],
            costs=self.costs[:, 0],
            states=np.stack(order, axis=1),
            shared_states=np.zeros_like(prices),
        )


def best_states_with_shared_nodes(tables: Sequence[BlockTable]) -> BestStates:
    """Of a range where distant blocks share nodes."""
    prices = len(tables[0].shared_costs)
    products = _ProductCache()
    prefixes = [np.zeros((prices, 1, 1))]
    """[prices, shared states, states] at the left end and behind every factor."""
    factors: list[_Product | BlockTable] = []
    for has_shared, group in groupby(tables, key=lambda table: bool(table.block.shared)):
        for factor in list(group) if has_shared else [products.of(list(group))]:
            factors.append(factor)
            costs = factor.shared_costs if isinstance(factor, BlockTable) else factor.costs[:, None]
            prefixes.append(_times(prefixes[-1], costs))
    totals = prefixes[-1][:, :, 0]
    shared_states = totals.argmin(axis=1)
    states = np.zeros((prices, len(tables) + 1), dtype=np.int64)
    for p in range(prices):
        shared = shared_states[p]
        backwards = [0]
        for prefix, factor in zip(reversed(prefixes[:-1]), reversed(factors), strict=True):
            if isinstance(factor, BlockTable):
                costs = factor.shared_costs[p, _shared_index(shared, factor.shared_costs)]
            else:
                costs = factor.costs[p]
            start = int((prefix[p, _shared_index(shared, prefix)] + costs[:, backwards[-1]]).argmin())
            inside = factor.inner_states(p, start, backwards[-1]) if isinstance(factor, _Product) else []
            backwards += [*reversed(inside), start]
        states[p] = backwards[::-1]
    return BestStates(tables=tuple(tables), costs=totals.min(axis=1), states=states, shared_states=shared_states)


def _shared_index(shared_state: int, costs: Floats) -> int:
    """`shared_state`, or 0 where the costs are the same for all of them."""
    return shared_state if costs.shape[1] > 1 else 0


def _times(prefix: Floats, costs: Floats) -> Floats:
    """[prices, shared, states] ⊗ [prices, shared, states, others]; an axis `shared` of length 1 is broadcast."""
    prices, _, states, others = costs.shape
    shared = max(prefix.shape[1], costs.shape[1])
    product = np.empty((prices, shared, others))
    if costs.shape[1] == 1:
        kernels.min_plus_product(np.ascontiguousarray(prefix), np.ascontiguousarray(costs[:, 0]), product)
        return product
    # A copy in any case: a kernel is compiled a second time for a read-only array, which a broadcast is.
    vectors = np.array(np.broadcast_to(prefix, (prices, shared, states)), order="C").reshape(-1, 1, states)
    flat = product.reshape(-1, 1, others)
    kernels.min_plus_product(vectors, np.ascontiguousarray(costs).reshape(-1, states, others), flat)
    return product


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Product:
    """The product of the tables of neighbouring blocks without shared nodes."""

    costs: Floats
    """[prices, left, right]"""
    factors: tuple[_Product, _Product] | None

    def inner_states(self, price: int, left: int, right: int) -> list[int]:
        """The best states of the separators between its blocks, given the states at its ends."""
        if self.factors is None:
            return []
        a, b = self.factors
        middle = int((a.costs[price, left] + b.costs[price, :, right]).argmin())
        return [*a.inner_states(price, left, middle), middle, *b.inner_states(price, middle, right)]


class _ProductCache:
    """Computes products of tables; equal products are computed once."""

    def __init__(self) -> None:
        self._single: dict[BlockTable, _Product] = {}
        self._pairs: dict[tuple[_Product, _Product], _Product] = {}

    def of(self, tables: Sequence[BlockTable]) -> _Product:
        """Neighbours are multiplied in pairs until one product is left."""
        products = [self._single.setdefault(table, _Product(costs=table.costs, factors=None)) for table in tables]
        while len(products) > 1:
            pairs = [self._pair(a, b) for a, b in zip(products[::2], products[1::2], strict=False)]
            products = pairs + products[len(pairs) * 2 :]
        return products[0]

    def _pair(self, a: _Product, b: _Product) -> _Product:
        if (a, b) not in self._pairs:
            costs = np.empty((len(a.costs), a.costs.shape[1], b.costs.shape[2]))
            kernels.min_plus_product(a.costs, b.costs, costs)
            self._pairs[a, b] = _Product(costs=costs, factors=(a, b))
        return self._pairs[a, b]
