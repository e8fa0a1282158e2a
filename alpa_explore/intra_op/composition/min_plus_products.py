"""Products of block tables in (min, +), and the best states of all separators by backtracking.

A chain is evaluated as a vector times tables, from one end of the stage to the other (`PrefixCosts`). Where distant
blocks share the nodes of a parameter, the tables of those blocks depend on the state t of the shared nodes too. With
M_k the tables between them, the same for every t,

    least cost = min over t of  A_t ⊗ M_1 ⊗ … ⊗ M_n ⊗ Z_t

Without the condition that all blocks have the same t, that is an ordinary chain. Its least costs from either end are
lower bounds on every choice that passes through a state of a separator; its best choice, with the best t for all
blocks, is an upper bound. States whose lower bound is above the upper one are left out. That leaves few, and the
product is taken over them, for all t at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.composition import tuning
from alpa_explore.intra_op.composition.block_tables import BlockTable
from alpa_explore.intra_op.composition.contraction import kernels
from alpa_explore.intra_op.reduction.factor_graph import min_plus_product
from alpa_explore.numerics.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BestStates:
    """The best states of the separators of one layer range; a row for each price, or for each mixture of two."""

    tables: tuple[BlockTable, ...]
    costs: Floats
    """[rows]"""
    prices: Ints
    """[rows, tables], or [rows, 1] where all have one: the number of the price of every block."""
    states: Ints
    """[rows, tables + 1]: at the left and the right of every block."""
    shared_states: Ints
    """[rows]"""


class PrefixCosts:
    """The least cost from one end of a stage to every state of a separator, for each price.

    The states behind a cost are looked up where they are asked for: those are few, and costs are computed of all.
    """

    def __init__(self, prices: int, direction: int) -> None:
        self.direction = direction
        """1 from left to right, −1 from right to left."""
        self.costs: Floats = np.zeros((prices, 1))
        self._last: tuple[PrefixCosts, BlockTable] | None = None
        """The prefix without the last block, and the table of that block."""
        self._before: dict[bytes, Ints] = {}
        """States [prices] at its end -> the best states in front of the last block."""

    def extended(self, table: BlockTable) -> PrefixCosts:
        """The prefix with one more block."""
        directed, costs = table.directed(self.direction), self.costs[:, None]
        assert costs.shape[2] == directed.costs.shape[1], "neighbouring blocks have the same separator"
        extended = np.empty((len(costs), 1, directed.costs.shape[2]))
        kernels.extend(costs, directed.costs, directed.pivots, directed.excess, extended)
        longer = PrefixCosts(len(costs), self.direction)
        longer.costs, longer._last = extended[:, 0], (self, table)
        return longer

    def best_states(self) -> BestStates:
        """Of the range that ends with the last block."""
        end = np.zeros(len(self.costs), dtype=np.int64)
        tables, states = self.states_from(end)
        prices = np.arange(len(end))[:, None]
        return BestStates(tables=tables, costs=self.costs[:, 0], prices=prices, states=states, shared_states=end)

    def states_from(self, end: Ints) -> tuple[tuple[BlockTable, ...], Ints]:
        """The tables of the blocks, and the best states [prices, tables + 1] where the last ones are `end` [prices];
        both from left to right."""
        states, tables, prefix = [end], list[BlockTable](), self
        while prefix._last is not None:
            states.append(prefix._states_before(states[-1]))
            prefix, table = prefix._last
            tables.append(table)
        return tuple(tables[:: -self.direction]), np.stack(states[:: -self.direction], axis=1)

    def _states_before(self, states: Ints) -> Ints:
        """For each price the first of the best states in front of the last block, for these `states` behind it."""
        key = states.tobytes()
        if key not in self._before:
            assert self._last is not None, "the empty prefix has no last block"
            shorter, table = self._last
            costs = table.directed(self.direction).costs[np.arange(len(states)), :, states]
            self._before[key] = (shorter.costs + costs).argmin(axis=1)
        return self._before[key]


def best_states_of_mixtures(tables: Sequence[BlockTable]) -> BestStates:
    """Of a range at two prices: in row k the first k blocks have the second price, and those behind them the first."""
    prefixes, suffixes = [PrefixCosts(2, 1)], [PrefixCosts(2, -1)]
    for front, back in zip(tables, reversed(tables), strict=True):
        prefixes.append(prefixes[-1].extended(front))
        suffixes.append(suffixes[-1].extended(back))
    costs, states = [], []
    for prefix, suffix in zip(prefixes, reversed(suffixes), strict=True):
        through = prefix.costs[1] + suffix.costs[0]
        middle = np.full(2, through.argmin())
        costs.append(through.min())
        states.append([*prefix.states_from(middle)[1][1, :-1], *suffix.states_from(middle)[1][0]])
    rows, blocks = np.arange(len(costs)), np.arange(len(tables))
    return BestStates(
        tables=tuple(tables),
        costs=np.array(costs),
        prices=(blocks < rows[:, None]).astype(np.int64),
        states=np.array(states, dtype=np.int64),
        shared_states=np.zeros_like(rows),
    )


def best_states_with_shared_nodes(tables: Sequence[BlockTable]) -> BestStates:
    """Of a range where distant blocks share nodes."""
    prices = len(tables[0].shared_costs)
    costs, shared_states = np.full(prices, np.inf), np.zeros(prices, dtype=np.int64)
    states = np.zeros((prices, len(tables) + 1), dtype=np.int64)
    least = {table: table.shared_costs.min(axis=1) for table in dict.fromkeys(tables)}
    suffixes = _from_the_end([least[table] for table in tables])
    prefixes = _from_the_end([least[table].transpose(0, 2, 1) for table in reversed(tables)])[::-1]
    for p in range(prices):
        if suffixes[0][p, 0] == np.inf:
            continue
        at_price = [table.shared_costs[p] for table in tables]
        after = [suffix[p] for suffix in suffixes]
        highest = _cost_along_the_best(at_price, [least[table][p] for table in tables], after)
        highest += tuning.ROUNDING_OF_BOUNDS * abs(highest)
        kept = [
            np.flatnonzero(prefix[p] + of_state <= highest) for prefix, of_state in zip(prefixes, after, strict=True)
        ]
        costs[p], shared_states[p], states[p] = _best_of_states(at_price, kept)
    at = np.arange(prices)[:, None]
    return BestStates(tables=tuple(tables), costs=costs, prices=at, states=states, shared_states=shared_states)


def _from_the_end(tables: Sequence[Floats]) -> list[Floats]:
    """The least cost from every state of each separator to the end of a chain, [prices, states]. A table that comes
    several times is turned round once."""
    distinct = {id(table): table for table in tables}
    turned = {number: np.ascontiguousarray(table.transpose(0, 2, 1)) for number, table in distinct.items()}
    costs = [np.zeros((len(tables[0]), 1, 1))]
    for table in reversed(tables):
        product = np.empty((len(table), 1, table.shape[1]))
        min_plus_product(costs[-1], turned[id(table)], product)
        costs.append(product)
    return [of_separator[:, 0] for of_separator in reversed(costs)]


def _cost_along_the_best(tables: Sequence[Floats], least: Sequence[Floats], after: Sequence[Floats]) -> float:
    """The cost of a choice: its separators have the states of a best choice where every block has its own state of the
    shared nodes. `tables` are [shared states, left, right], `least` their minima over the first axis."""
    state, costs = 0, np.zeros(1)
    for table, of_least, rest in zip(tables, least, after[1:], strict=True):
        following = int((of_least[state] + rest).argmin())
        costs = costs + table[:, state, following]
        state = following
    return float(costs.min())


def _best_of_states(tables: Sequence[Floats], kept: Sequence[Ints]) -> tuple[float, int, Ints]:
    """The least cost of the choices whose separators have states in `kept`, and one of them: the state of the shared
    nodes and those of the separators. `tables` are [shared states, left, right]."""
    parts = [table[:, left[:, None], right] for table, left, right in zip(tables, kept[:-1], kept[1:], strict=True)]
    prefixes = [np.zeros((1, 1))]
    """[shared states, kept states]"""
    for part in parts:
        prefixes.append(_times(prefixes[-1], part))
    totals = prefixes[-1][:, 0]
    shared = int(totals.argmin())
    places = [0]
    for prefix, part in zip(reversed(prefixes[:-1]), reversed(parts), strict=True):
        costs = part[_shared_index(shared, part), :, places[-1]]
        places.append(int((prefix[_shared_index(shared, prefix)] + costs).argmin()))
    states = [of_separator[place] for of_separator, place in zip(kept, reversed(places), strict=True)]
    return float(totals[shared]), shared, np.array(states, dtype=np.int64)


def _shared_index(shared_state: int, costs: Floats) -> int:
    """`shared_state`, or 0 where the costs are the same for all of them."""
    return shared_state if len(costs) > 1 else 0


def _times(prefix: Floats, costs: Floats) -> Floats:
    """[shared, states] ⊗ [shared, states, others]; an axis `shared` of length 1 is broadcast."""
    shared, states, others = costs.shape
    if shared == 1:
        vectors, product = prefix[None], np.empty((1, len(prefix), others))
    else:
        # A copy in any case: a kernel is compiled a second time for a read-only array, which a broadcast is.
        vectors = np.array(np.broadcast_to(prefix, (shared, states)), order="C")[:, None]
        product = np.empty((shared, 1, others))
    min_plus_product(vectors, np.ascontiguousarray(costs), product)
    return product.reshape(-1, others)
