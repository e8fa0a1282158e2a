"""Arc consistency, against repeated passes over all strategies."""

import itertools

import numpy as np

from alpa_explore.intra_op.reduction.arc_consistency import Neighbour, propagate


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
