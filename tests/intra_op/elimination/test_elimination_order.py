from itertools import permutations
from math import prod

import numpy as np
import pytest

from alpa_explore.intra_op.elimination import tuning
from alpa_explore.intra_op.elimination.elimination_order import EliminationOrder, elimination_order

Drawn = tuple[tuple[int, ...], tuple[tuple[int, int], ...], frozenset[int]]


def draw(seed: int, nodes: int, share: float) -> Drawn:
    rng = np.random.default_rng(seed)
    sizes = tuple(rng.integers(2, 9, nodes).tolist())
    edges = tuple((a, b) for a in range(nodes) for b in range(a) if rng.random() < share)
    return sizes, edges, frozenset(rng.permutation(nodes)[: rng.integers(0, 3)].tolist())


def tables_of(drawn: Drawn, order: tuple[int, ...]) -> list[tuple[int, int]]:
    """For every step the joined entries and those of the table that remains."""
    sizes, edges, _ = drawn
    scopes, tables = [set(e) for e in edges], []
    for v in order:
        joined = set().union({v}, *(s for s in scopes if v in s))
        scopes = [s for s in scopes if v not in s] + [joined - {v}]
        tables.append((prod(sizes[u] for u in joined), prod(sizes[u] for u in joined - {v})))
    return tables


def check(drawn: Drawn, order: EliminationOrder) -> None:
    assert sorted({*order.nodes, *drawn[2]}) == list(range(len(drawn[0])))
    assert not drawn[2] & set(order.nodes)
    tables = tables_of(drawn, order.nodes)
    assert order.joined_entries == sum(joined for joined, _ in tables)
    assert order.table_entries == sum(kept for _, kept in tables)
    assert order.largest_table == max(kept for _, kept in tables)


@pytest.mark.parametrize("core", [0, 64], ids=["every node tried", "cheap nodes first"])
@pytest.mark.parametrize("seed", range(40))
def test_the_cost_of_an_order_is_exact_and_searching_never_makes_it_worse(
    seed: int, core: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = draw(seed, 24, 0.2)
    monkeypatch.setattr(tuning, "JOINS_A_TRY", np.inf)
    plain = elimination_order(*drawn)
    check(drawn, plain)
    monkeypatch.setattr(tuning, "JOINS_A_TRY", 10.0)
    monkeypatch.setattr(tuning, "CORE_JOINS", core)
    searched = elimination_order(*drawn)
    check(drawn, searched)
    assert searched.joined_entries <= plain.joined_entries
    assert elimination_order(*drawn) == searched, "the same problem always gets the same order"


@pytest.mark.parametrize("keep", [frozenset(), frozenset({0, 150})], ids=["none kept", "two kept"])
def test_many_cheap_nodes_have_an_order_too(keep: frozenset[int]) -> None:
    # Each joins less than CORE_JOINS, all together more than JOINS_A_TRY: no node is left to search over.
    nodes = 300
    chain = (22,) * nodes, tuple((i, i + 1) for i in range(nodes - 1)), keep
    order = elimination_order(*chain)
    check(chain, order)
    assert tuning.JOINS_A_TRY < order.joined_entries < (nodes - 1 - len(keep)) * 22**3


@pytest.mark.slow
def test_the_search_finds_the_best_order_of_small_graphs_nearly_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "CORE_JOINS", 0)
    greedy = searched = 0
    for seed in range(60):
        drawn = draw(seed, 7, 0.45)
        free = [v for v in range(7) if v not in drawn[2]]
        best = min(sum(joined for joined, _ in tables_of(drawn, order)) for order in permutations(free))
        monkeypatch.setattr(tuning, "JOINS_A_TRY", np.inf)
        greedy += elimination_order(*drawn).joined_entries == best
        monkeypatch.setattr(tuning, "JOINS_A_TRY", 1.0)
        searched += elimination_order(*drawn).joined_entries == best
    assert greedy < searched
    assert searched >= 54, "of 60"
