"""Axis ranges hold every point, and labels do not cover one another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.figures.marks import AxisRange, end_of_most, fitted, label_positions


@given(st.lists(st.floats(0.1, 1e6), min_size=1), st.floats(0.1, 1e6))
def test_every_value_is_in_its_range(values: list[float], limit: float) -> None:
    low, high = fitted(values, limit)
    assert 0 <= low <= min(values)
    assert max(values) < high


def test_a_range_begins_at_0_unless_the_values_lie_close_together() -> None:
    assert fitted([1.0, 10.0]).low == 0
    assert 0 < fitted([99.0, 100.0]).low < 99
    assert fitted([99.0, 100.0]).title("ms") == "ms, axis not from 0"
    assert fitted([1.0, 10.0]).title("ms") == "ms"


def test_a_limit_is_kept_in_sight_where_the_points_stay_apart() -> None:
    assert fitted([5.0, 10.0], 16.0).high > 16
    assert fitted([9.9, 10.0], 16.0).high < 11


def test_labels_of_neighbouring_points_go_to_different_sides() -> None:
    axis = AxisRange(0.0, 100.0)
    positions = label_positions(
        [(50.0, 50.0), (50.5, 50.0), (51.0, 50.0)], ["this one", "that one", "a third"], axis, axis
    )
    assert len(set(positions)) == 3


def test_a_label_crosses_no_upright_line() -> None:
    axis = AxisRange(0.0, 100.0)
    free = label_positions([(48.0, 50.0)], ["this plan"], axis, axis)
    beside = label_positions([(48.0, 50.0)], ["this plan"], axis, axis, upright=[50.0])
    assert free == ["top center"]
    assert beside[0].endswith("left")


def test_an_axis_shows_nearly_all_values_and_cuts_off_the_few_that_would_flatten_them() -> None:
    usual = [float(value) for value in range(1, 101)]
    assert end_of_most(usual) == 100.0
    assert end_of_most([*usual, 1_000.0], room=1.05) == pytest.approx(1.05 * 1.35 * 98.0)
    assert end_of_most([*usual, *[1_000.0] * 10]) == 1_000.0, "they are not few"
    assert end_of_most([*usual, 200.0]) == 200.0, "it flattens nothing"
    assert end_of_most([]) == 0.0
    assert end_of_most([0.0, 0.0, 0.0, 0.0, 5.0]) == 5.0
