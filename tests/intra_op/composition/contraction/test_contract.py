"""Contraction: every entry of the table is the least cost, and backtracking gives a choice that attains it."""

import math
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from alpa_explore.intra_op.composition.contraction import tuning
from alpa_explore.intra_op.composition.contraction.contract import contract
from alpa_explore.intra_op.composition.contraction.priced_problem import PricedProblem
from alpa_explore.intra_op.composition.contraction.program import compile_program
from alpa_explore.intra_op.composition.contraction.tuning import LIMITS
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN

PRICES = 2


class RandomProblem(NamedTuple):
    """Arrays begin with an axis for the price, of length 1 where it makes no difference."""

    node_costs: tuple[np.ndarray, ...]
    edges: tuple[tuple[int, int], ...]
    edge_costs: tuple[np.ndarray, ...]


def random_problem(seed: int) -> tuple[RandomProblem, tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(2, 8))
    sizes = rng.integers(1, 4, nodes)
    pairs = [(a, b) for a in range(nodes) for b in range(nodes) if a != b and rng.random() < 0.35]
    forbidden = rng.choice([0.0, 0.3])

    def costs(*shape: int) -> np.ndarray:
        # An array that does not depend on the price has one entry on its first axis.
        values = rng.random((rng.choice([1, PRICES]), *shape))
        return np.where(rng.random(shape) < (forbidden if len(shape) > 1 else 0.0), FORBIDDEN, values)

    problem = RandomProblem(
        node_costs=tuple(costs(k) for k in sizes),
        edges=tuple(pairs),
        edge_costs=tuple(costs(sizes[a], sizes[b]) for a, b in pairs),
    )
    return problem, tuple(int(v) for v in rng.permutation(nodes)[: rng.integers(0, min(4, nodes) + 1)])


def evaluate(problem: RandomProblem, price: int, choices: tuple[int, ...]) -> float:
    total = sum(c[price % len(c), choice] for c, choice in zip(problem.node_costs, choices, strict=True))
    return float(
        total
        + sum(
            m[price % len(m), choices[a], choices[b]]
            for (a, b), m in zip(problem.edges, problem.edge_costs, strict=True)
        )
    )


def least_costs(problem: RandomProblem, keep: tuple[int, ...], price: int) -> dict[tuple[int, ...], float]:
    """By brute force: of the strategies of the nodes that are kept, the least cost with them."""
    best: dict[tuple[int, ...], float] = {}
    for choices in product(*(range(c.shape[1]) for c in problem.node_costs)):
        at = tuple(choices[v] for v in keep)
        best[at] = min(best.get(at, np.inf), evaluate(problem, price, choices))
    return best


WAYS = {
    "slices": {"STORED_ENTRIES": 0, "SLICE_SHARE": 1 << 20, "BACKTRACKING_ENTRIES": np.inf},
    "points": {"STORED_ENTRIES": 0, "SLICE_SHARE": 0, "BACKTRACKING_ENTRIES": np.inf},
    "all tables stored": {"STORED_ENTRIES": 1 << 12, "SLICE_SHARE": 0, "BACKTRACKING_ENTRIES": np.inf},
    "no tables kept": {"STORED_ENTRIES": 0, "SLICE_SHARE": 1 << 20, "BACKTRACKING_ENTRIES": 0},
}
"""How choices are found again."""


@pytest.mark.parametrize("seed", range(100))
def test_every_entry_is_the_least_cost_with_these_strategies_and_a_choice_attains_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "ENTRIES_WORTH_DOMINANCE", 0 if seed % 2 else np.inf)
    problem, keep = random_problem(seed)
    expected = [least_costs(problem, keep, price) for price in range(PRICES)]
    for way, merged in product(WAYS, (0, 1 << 12)):
        for name, value in {**WAYS[way], "MERGED_ENTRIES": merged}.items():
            monkeypatch.setattr(tuning, name, value)
        assert_contracted(seed, problem, keep, expected)


def assert_contracted(
    seed: int, problem: RandomProblem, keep: tuple[int, ...], expected: list[dict[tuple[int, ...], float]]
) -> None:
    compile_program.cache_clear()
    contraction = contract(PricedProblem.of(*problem, prices=PRICES), keep)
    compile_program.cache_clear()
    assert contraction is not None
    shape = tuple(problem.node_costs[v].shape[1] for v in keep)
    table = np.broadcast_to(contraction.table, (PRICES, math.prod(shape))).reshape(PRICES, *shape)
    at_all_prices: list[tuple[int, tuple[int, ...], float]] = []
    for price, best in enumerate(expected):
        legal = [at for at, cost in best.items() if cost < FORBIDDEN]
        assert all(table[(price, *at)] == np.inf for at in best if at not in legal)
        rows = contraction.complete(
            np.full(len(legal), price), np.array(legal, dtype=np.int64).reshape(len(legal), len(keep))
        )
        for at, row in zip(legal, rows.tolist(), strict=True):
            assert table[(price, *at)] == pytest.approx(best[at], rel=1e-12)
            assert tuple(row[v] for v in keep) == at
            assert evaluate(problem, price, tuple(row)) == pytest.approx(best[at], rel=1e-12)
        at_all_prices += [(price, at, best[at]) for at in legal]
    # Rows of one call may be in any order.
    at_all_prices = [at_all_prices[i] for i in np.random.default_rng(seed).permutation(len(at_all_prices))]
    rows = contraction.complete(
        np.array([price for price, _, _ in at_all_prices], dtype=np.int64),
        np.array([at for _, at, _ in at_all_prices], dtype=np.int64).reshape(len(at_all_prices), len(keep)),
    )
    for (price, at, least), row in zip(at_all_prices, rows.tolist(), strict=True):
        assert tuple(row[v] for v in keep) == at
        assert evaluate(problem, price, tuple(row)) == pytest.approx(least, rel=1e-12)


def test_more_kept_nodes_than_an_array_has_axes() -> None:
    rng = np.random.default_rng(0)
    sizes = [3, 1, 4, *(1,) * 66, 2]
    edges = [(v - 1, v) for v in range(1, len(sizes))]
    node_costs = [rng.random((1, n)) for n in sizes]
    edge_costs = [rng.random((1, sizes[a], sizes[b])) for a, b in edges]
    keep = tuple(v for v in range(len(sizes)) if v != 1)
    contraction = contract(PricedProblem.of(node_costs, edges, edge_costs, prices=1), keep)
    assert contraction is not None
    for entry, (a, b, c) in enumerate(product(range(3), range(4), range(2))):
        choices = (a, 0, b, *(0,) * 66, c)
        cost = sum(costs[0, k] for costs, k in zip(node_costs, choices, strict=True))
        cost += sum(costs[0, choices[u], choices[v]] for costs, (u, v) in zip(edge_costs, edges, strict=True))
        assert contraction.table[0, entry] == pytest.approx(cost, rel=1e-12)


def test_a_problem_beyond_the_limits_is_not_contracted() -> None:
    rng = np.random.default_rng(0)
    pairs = [(a, b) for a in range(9) for b in range(a)]
    problem = PricedProblem.of(
        [rng.random((1, 6)) for _ in range(9)], pairs, [rng.random((1, 6, 6)) for _ in pairs], prices=1
    )
    assert contract(problem, (0, 1), replace(LIMITS, joined_entries=1e5)) is None
    assert contract(problem, tuple(range(9)), replace(LIMITS, largest_table=1e7)) is None, "the table alone has 6^9"
    assert contract(problem, (0, 1)) is not None
