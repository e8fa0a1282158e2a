"""Formatted values, and units for axes."""

from collections.abc import Callable

import pytest

from alpa_explore import units


@pytest.mark.parametrize(
    ("formatted", "expected"),
    [
        (units.seconds(1.2e-3), "1.2 ms"),
        (units.seconds(0.0), "0 µs"),
        (units.bytes_(2**30), "1 GiB"),
        (units.flops(1.2e12), "1.2 TFLOP"),
        (units.bytes_per_second(3e9), "3 GB/s"),
        (units.count(1.3e9), "1.3 G"),
        (units.percent(0.304), "30.4 %"),
        (units.seconds(4321.0), "4,321 s"),
        (units.seconds(0.9999), "1 s"),
        (units.seconds(0.0009987), "999 µs"),
        (units.seconds(1.78e-15), "0 µs"),
        (units.seconds(8.02e-10), "0 µs"),
        (units.seconds(2.5e-9), "0.0025 µs"),
        (units.bytes_(1023.5 * 2**20), "1,024 MiB"),
        (units.percent(12.5), "1,250 %"),
        (units.percent(0.0), "0 %"),
        (units.percent(3e-7), "<0.01 %"),
        (units.number(0.03196), "0.032"),
        (units.number(12858.3), "12,858"),
        (units.number(-1500.0), "-1,500"),
        (units.shape((2, 4)), "2×4"),
        (units.shape((8, 1024)), "8×1,024"),
        (units.shape(()), "scalar"),
    ],
)
def test_a_value_is_shown_with_its_unit(formatted: str, expected: str) -> None:
    assert formatted == expected


@pytest.mark.parametrize(
    ("axis", "largest", "expected"),
    [
        (units.seconds_axis, 0.02, (1e-3, "ms")),
        (units.seconds_axis, 0.0, (1e-6, "µs")),
        (units.bytes_axis, 3e9, (2.0**30, "GiB")),
        (units.flops_axis, 3e12, (1e12, "TFLOP")),
        (units.flops_axis, 0, (1.0, "FLOP")),
    ],
)
def test_an_axis_has_the_unit_of_its_largest_value(
    axis: Callable[[float], tuple[float, str]], largest: float, expected: tuple[float, str]
) -> None:
    assert axis(largest) == expected
