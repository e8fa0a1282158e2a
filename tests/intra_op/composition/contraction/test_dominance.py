"""Strategies that are never better than another one of their node are dropped before a contraction."""

from __future__ import annotations

import numpy as np
import pytest

from alpa_explore.intra_op.composition.contraction import tuning
from alpa_explore.intra_op.composition.contraction.dominance import without_dominated
from alpa_explore.intra_op.composition.contraction.priced_problem import PricedProblem
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN
from alpa_explore.numerics.arrays import Floats

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


def test_one_that_costs_more_beside_every_neighbour_is_dropped() -> None:
    assert left(np.array([[1.0, 1.0, 1.0]])) == [0, 1]


def test_one_that_is_better_at_one_price_stays() -> None:
    assert left(np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.4]])) == [0, 1, 2]
    assert left(np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.5]])) == [0, 1]


def test_of_equal_ones_the_first_stays() -> None:
    assert left(np.zeros((1, 3)), np.zeros((1, 3, 2))) == [0]


def test_a_kept_node_loses_none() -> None:
    assert left(np.zeros((1, 3)), np.zeros((1, 3, 2)), keep=(0, 1)) == [0, 1, 2]


def test_a_forbidden_one_is_dropped_unless_all_are() -> None:
    forbidden = EDGE.copy()
    forbidden[:, 0] = FORBIDDEN
    assert left(np.ones((1, 3)), forbidden) == [1, 2]
    assert len(left(np.ones((1, 3)), np.full((1, 3, 2), FORBIDDEN))) == 1
    assert left(np.array([[FORBIDDEN, 1.0, 1.0]])) == [1, 2]


def test_a_pair_that_is_forbidden_only_for_the_cheaper_one_keeps_the_other() -> None:
    edge = np.array([[[0.0, FORBIDDEN], [5.0, 5.0], [6.0, FORBIDDEN]]])
    assert left(np.zeros((1, 3)), edge) == [0, 1]


def test_a_node_that_would_take_too_long_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "DOMINANCE_STEPS", 3 * 3 * 2 - 1)
    assert left(np.array([[1.0, 1.0, 1.0]])) == [0, 1, 2]
