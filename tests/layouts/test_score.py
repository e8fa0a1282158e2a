"""Errors and rank correlation of predictions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.layouts.score import kendall_tau, score
from tests.layouts.measured import small

NUMBERS = st.lists(st.integers(0, 5), min_size=2, max_size=8)


@pytest.mark.parametrize(
    ("first", "second", "tau"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 2, 4, 3], 4 / 6),
        ([1, 1, 2], [1, 2, 3], 2 / 6**0.5),
        ([1, 1], [1, 2], None),
        ([1], [2], None),
    ],
)
def test_tau_of_small_orders(first: list[float], second: list[float], tau: float | None) -> None:
    assert kendall_tau(first, second) == (tau if tau is None else pytest.approx(tau))


@given(NUMBERS, st.randoms())
def test_tau_does_not_ask_which_comes_first_and_turns_with_the_order(first: list[int], chance: object) -> None:
    second = list(first)
    chance.shuffle(second)  # type: ignore[attr-defined]
    found = kendall_tau(first, second)
    assert found == kendall_tau(second, first)
    turned = kendall_tau(first, [-x for x in second])
    assert turned == (None if found is None else pytest.approx(-found))


def test_errors_are_averaged_apart_for_one_node_and_for_several() -> None:
    one, several = small(), small(devices=16, data=4)
    found = score([one, one, several], [1.1, 1.8, 3.0], [1.0, 2.0, 2.0])
    assert found.one_node_error == pytest.approx(0.1)
    assert found.several_nodes_error == pytest.approx(0.5)
    assert found.kendall_tau == 1.0, "the two rows of one node are in order; a group of one has none"
    assert [(rows, tau) for _, rows, tau in found.groups] == [(2, 1.0)]


def test_nothing_measured_has_no_score() -> None:
    found = score([], [], [])
    assert found.one_node_error is found.several_nodes_error is found.kendall_tau is None
