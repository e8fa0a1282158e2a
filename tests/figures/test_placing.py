"""Axis ranges hold every point, and labels do not cover one another."""

from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.figures.placing import AxisRange, fitted, label_positions


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
