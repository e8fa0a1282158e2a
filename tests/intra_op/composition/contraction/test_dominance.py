"""Strategies that are never better than another one of their node are dropped before a contraction."""

import numpy as np
import pytest

from alpa_explore.intra_op.composition.contraction import tuning
from alpa_explore.intra_op.composition.contraction.dominance import undominated, without_dominated
from alpa_explore.intra_op.composition.contraction.priced_problem import PricedProblem
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN
from alpa_explore.numerics.arrays import Floats, Ints

EDGE = np.array([[[0.0, 2.0], [1.0, 1.0], [0.5, 2.5]]])
"""[price, strategies of node 0, strategies of node 1]"""


def left(costs: Floats, edge: Floats = EDGE, keep: tuple[int, ...] = (1,)) -> list[int]:
    """The strategies of node 0 that stay."""
    problem = PricedProblem.of([costs, np.zeros((1, edge.shape[2]))], [(0, 1)], [edge], prices=2)
    reduced, strategies = without_dominated(problem, keep)
    assert reduced.form.sizes == tuple(map(len, strategies))
    node, other = map(len, strategies)
    assert reduced.common_costs.size + reduced.priced_costs.shape[1] == node + other + node * other
    return strategies[0].tolist()


def test_one_that_is_better_at_one_price_stays() -> None:
    assert left(np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.4]])) == [0, 1, 2]
    assert left(np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.5]])) == [0, 1]


def test_a_forbidden_one_is_dropped_unless_all_are() -> None:
    forbidden = EDGE.copy()
    forbidden[:, 0] = FORBIDDEN
    assert left(np.ones((1, 3)), forbidden) == [1, 2]
    assert len(left(np.ones((1, 3)), np.full((1, 3, 2), FORBIDDEN))) == 1
    assert left(np.array([[FORBIDDEN, 1.0, 1.0]])) == [1, 2]


@pytest.mark.slow
def test_a_node_that_would_take_too_long_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "DOMINANCE_STEPS", 3 * 3 * 2 - 1)
    assert left(np.array([[1.0, 1.0, 1.0]])) == [0, 1, 2]


def plainly_undominated(costs: Floats, tables: list[Floats]) -> list[int]:
    """The rule in numpy: the last strategy is judged first, by those that are left."""
    stay = [k for k in range(len(costs)) if costs[k] < np.inf and all(table[k].min() < np.inf for table in tables)]
    for k in reversed(stay.copy()):
        for other in stay:
            legal = [np.isfinite(table[k]) for table in tables]
            more = [(table[other, ok] - table[k, ok]).max() for table, ok in zip(tables, legal, strict=True)]
            if other != k and costs[other] - costs[k] + sum(more) <= 0:
                stay.remove(k)
                break
    return stay


def by_reference(node_costs: list[Floats], edges: list[tuple[int, int]], edge_costs: list[Floats]) -> list[Ints]:
    """The strategies of every node but the last that the rule leaves, at one price."""
    left = [np.arange(len(costs)) for costs in node_costs]
    before: list[Ints] = []
    while list(map(len, before)) != list(map(len, left)):
        before = list(left)
        for v, costs in enumerate(node_costs[:-1]):
            tables = [
                table[np.ix_(left[a], left[b])] if v == a else table[np.ix_(left[a], left[b])].T
                for (a, b), table in zip(edges, edge_costs, strict=True)
                if v in (a, b)
            ]
            kept = plainly_undominated(costs[left[v]], tables)
            assert undominated(costs[left[v]], tables).tolist() == kept
            left[v] = left[v][kept]
    return left


@pytest.mark.parametrize("seed", range(60))
def test_it_is_the_rule_of_the_solvers(seed: int) -> None:
    draw = np.random.default_rng(seed)
    sizes = draw.integers(1, 7, 5)
    edges = [(a, b) for a in range(5) for b in range(5) if a != b and draw.random() < 0.4]
    node_costs = [draw.integers(0, 4, n).astype(float) for n in sizes]
    edge_costs = [draw.integers(0, 3, (sizes[a], sizes[b])).astype(float) for a, b in edges]
    for costs in edge_costs:
        forbidden = draw.random(costs.shape) < 0.1
        forbidden[:, 0] = forbidden[0] = False  # every strategy has a legal neighbour
        costs[forbidden] = np.inf
    problem = PricedProblem.of(
        [c[None] for c in node_costs], edges, [np.where(np.isinf(c), FORBIDDEN, c)[None] for c in edge_costs], prices=1
    )
    _, left = without_dominated(problem, (4,))
    expected = by_reference(node_costs, edges, edge_costs)
    assert [of_node.tolist() for of_node in left] == [of_node.tolist() for of_node in expected]
