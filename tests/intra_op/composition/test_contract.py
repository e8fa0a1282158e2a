from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from alpa_explore.intra_op.composition import contract as module
from alpa_explore.intra_op.composition import contract_program
from alpa_explore.intra_op.composition.contract import LIMITS, Priced, contract
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN

PRICES = 2


class Drawn(NamedTuple):
    """Arrays begin with an axis for the price, of length 1 where it makes no difference."""

    node_costs: tuple[np.ndarray, ...]
    edges: tuple[tuple[int, int], ...]
    edge_costs: tuple[np.ndarray, ...]


def draw(seed: int) -> tuple[Drawn, tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(2, 8))
    sizes = rng.integers(1, 4, nodes)
    pairs = [(a, b) for a in range(nodes) for b in range(nodes) if a != b and rng.random() < 0.35]
    forbidden = rng.choice([0.0, 0.3])

    def costs(*shape: int) -> np.ndarray:
        # An array that does not depend on the price has one entry on its first axis.
        found = rng.random((rng.choice([1, PRICES]), *shape))
        return np.where(rng.random(shape) < (forbidden if len(shape) > 1 else 0.0), FORBIDDEN, found)

    problem = Drawn(
        node_costs=tuple(costs(k) for k in sizes),
        edges=tuple(pairs),
        edge_costs=tuple(costs(sizes[a], sizes[b]) for a, b in pairs),
    )
    return problem, tuple(int(v) for v in rng.permutation(nodes)[: rng.integers(0, min(4, nodes) + 1)])


def evaluate(problem: Drawn, price: int, choices: tuple[int, ...]) -> float:
    total = sum(c[price % len(c), choice] for c, choice in zip(problem.node_costs, choices, strict=True))
    return float(
        total
        + sum(
            m[price % len(m), choices[a], choices[b]]
            for (a, b), m in zip(problem.edges, problem.edge_costs, strict=True)
        )
    )


@pytest.mark.parametrize(
    ("kept", "joined", "steps"),
    [(0, 1 << 20, np.inf), (0, 0, np.inf), (1 << 12, 0, np.inf), (0, 1 << 20, 0)],
    ids=["slices", "points", "tables kept", "nothing kept"],
)
@pytest.mark.parametrize("added", [0, 1 << 12], ids=["apart", "added"])
@pytest.mark.parametrize("seed", range(100))
def test_every_entry_is_the_least_cost_with_these_strategies_and_a_choice_attains_it(
    seed: int, kept: int, joined: float, steps: float, added: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEPS_ENTRIES", steps)
    monkeypatch.setattr(contract_program, "KEPT_ENTRIES", kept)
    monkeypatch.setattr(contract_program, "POINT_ENTRIES", 0)
    monkeypatch.setattr(contract_program, "JOINED_SHARE", joined)
    monkeypatch.setattr(contract_program, "ADDED_ENTRIES", added)
    contract_program.program.cache_clear()
    problem, keep = draw(seed)
    contraction = contract(Priced.of(*problem, prices=PRICES), keep)
    contract_program.program.cache_clear()
    assert contraction is not None
    shape = tuple(problem.node_costs[v].shape[1] for v in keep)
    table = np.broadcast_to(contraction.table, (PRICES, *shape))
    for price in range(PRICES):
        best: dict[tuple[int, ...], float] = {}
        for choices in product(*(range(c.shape[1]) for c in problem.node_costs)):
            at = tuple(choices[v] for v in keep)
            best[at] = min(best.get(at, np.inf), evaluate(problem, price, choices))
        legal = [at for at, cost in best.items() if cost < FORBIDDEN]
        assert all(table[(price, *at)] == np.inf for at in best if at not in legal)
        rows = contraction.complete(
            np.full(len(legal), price), np.array(legal, dtype=np.int64).reshape(len(legal), len(keep))
        )
        for at, row in zip(legal, rows.tolist(), strict=True):
            assert table[(price, *at)] == pytest.approx(best[at], rel=1e-12)
            assert tuple(row[v] for v in keep) == at
            assert evaluate(problem, price, tuple(row)) == pytest.approx(best[at], rel=1e-12)


def test_what_is_too_wide_is_not_contracted() -> None:
    rng = np.random.default_rng(0)
    pairs = [(a, b) for a in range(9) for b in range(a)]
    problem = Priced.of([rng.random((1, 6)) for _ in range(9)], pairs, [rng.random((1, 6, 6)) for _ in pairs], prices=1)
    assert contract(problem, (0, 1), replace(LIMITS, joined_entries=1e5)) is None
    assert contract(problem, tuple(range(9)), replace(LIMITS, largest_table=1e7)) is None, "the table alone has 6^9"
    assert contract(problem, (0, 1)) is not None
