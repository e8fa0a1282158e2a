"""Sums of cost tables and arc consistency, against loops over all entries."""

import itertools

import numpy as np

from alpa_explore.intra_op.memory.pareto_bounds import sum_tables
from alpa_explore.intra_op.reduction.arc_consistency import Neighbour, propagate

SIZES = {0: 2, 1: 3, 2: 4, 3: 5}


def test_every_entry_of_a_sum_is_the_sum_of_the_entries_of_the_tables() -> None:
    rng = np.random.default_rng(31)
    for _ in range(50):
        scopes = [tuple(sorted(rng.choice(4, rng.integers(0, 4), replace=False).tolist())) for _ in range(4)]
        tables = [(scope, rng.random([SIZES[u] for u in scope])) for scope in scopes]
        axes = tuple(rng.permutation(4).tolist())
        total = sum_tables(tables, axes, [SIZES[u] for u in axes])
        for choice in itertools.product(*(range(SIZES[u]) for u in axes)):
            chosen = dict(zip(axes, choice, strict=True))
            expected = sum(float(table[tuple(chosen[u] for u in scope)]) for scope, table in tables)
            assert np.isclose(total[choice], expected, rtol=1e-12)


def test_an_axis_that_no_table_reads_has_length_1_without_sizes() -> None:
    assert sum_tables([((1,), np.ones(3))], (0, 1)).shape == (1, 3)


def test_every_strategy_that_arc_consistency_leaves_has_a_partner_on_every_edge_and_no_other_has() -> None:
    rng = np.random.default_rng(32)
    dropped = 0
    for _ in range(100):
        sizes = rng.integers(1, 5, 5)
        edges = [pair for pair in itertools.combinations(range(5), 2) if rng.random() < 0.5]
        legal = [rng.random((sizes[a], sizes[b])) < 0.5 for a, b in edges]
        neighbours: list[list[Neighbour]] = [[] for _ in sizes]
        for (a, b), flags in zip(edges, legal, strict=True):
            neighbours[a].append((flags, b))
            neighbours[b].append((flags.T, a))
        alive = [np.ones(size, dtype=bool) for size in sizes]
        propagate(alive, neighbours, range(5))
        # The largest set of strategies in which each has a partner on every edge, by repeated passes.
        expected = [np.ones(size, dtype=bool) for size in sizes]
        for _ in range(20):
            for v, k in itertools.product(range(5), range(4)):
                if k < sizes[v]:
                    expected[v][k] &= all((flags[k] & expected[u]).any() for flags, u in neighbours[v])
        assert all((a == b).all() for a, b in zip(alive, expected, strict=True))
        dropped += any(not flags.all() for flags in alive)
    assert dropped > 50
