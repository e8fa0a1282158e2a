from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from alpa_explore.intra_op.contract import LIMITS, contract
from alpa_explore.intra_op.factor_graph import Contradiction
from alpa_explore.intra_op.problem import FORBIDDEN, ShardingProblem


def draw(seed: int) -> tuple[ShardingProblem, tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(2, 8))
    sizes = rng.integers(1, 4, nodes)
    pairs = [(a, b) for a in range(nodes) for b in range(nodes) if a != b and rng.random() < 0.35]
    forbidden = rng.choice([0.0, 0.3])

    def costs(*shape: int) -> np.ndarray:
        return np.where(rng.random(shape) < forbidden, FORBIDDEN, rng.random(shape))

    problem = ShardingProblem(
        name="drawn", node_costs=tuple(rng.random(k) for k in sizes), edges=tuple(pairs),
        edge_costs=tuple(costs(sizes[a], sizes[b]) for a, b in pairs),
    )  # fmt: skip
    return problem, tuple(int(v) for v in rng.permutation(nodes)[: rng.integers(0, min(4, nodes) + 1)])


@pytest.mark.parametrize("seed", range(150))
def test_every_entry_is_the_least_cost_with_these_strategies_and_a_choice_attains_it(seed: int) -> None:
    problem, keep = draw(seed)
    best: dict[tuple[int, ...], float] = {}
    for choices in product(*(range(len(c)) for c in problem.node_costs)):
        at = tuple(choices[v] for v in keep)
        best[at] = min(best.get(at, np.inf), problem.evaluate(choices))
    if min(best.values()) >= FORBIDDEN:
        with pytest.raises(Contradiction):
            contract(problem, keep)
        return
    contraction = contract(problem, keep)
    assert contraction is not None
    assert contraction.table.shape == tuple(len(problem.node_costs[v]) for v in keep)
    for at, cost in best.items():
        if cost >= FORBIDDEN:
            assert contraction.table[at] == np.inf
            continue
        assert contraction.table[at] == pytest.approx(cost, rel=1e-12)
        choices = contraction.complete(at)
        assert tuple(choices[v] for v in keep) == at
        assert problem.evaluate(choices) == pytest.approx(cost, rel=1e-12)


def test_what_is_too_wide_is_not_contracted() -> None:
    rng = np.random.default_rng(0)
    pairs = [(a, b) for a in range(9) for b in range(a)]
    problem = ShardingProblem(
        name="clique", node_costs=tuple(rng.random(6) for _ in range(9)), edges=tuple(pairs),
        edge_costs=tuple(rng.random((6, 6)) for _ in pairs),
    )  # fmt: skip
    assert contract(problem, (0, 1), replace(LIMITS, joined_entries=1e5)) is None
    assert contract(problem, tuple(range(9))) is None, "the table alone would have ten million entries"
    assert contract(problem, (0, 1)) is not None
