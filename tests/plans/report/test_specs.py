"""Specs in words."""

import pytest

from alpa_explore.plans.report.specs import axis_sizes, spec_legend, spec_lines, spec_phrase
from alpa_explore.sharding.spec import read_spec


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("RR", "whole on every device"),
        ("·", "whole on every device"),
        ("S0R", "dim 0 over axis 0"),
        ("S1S0", "dim 0 over axis 1, dim 1 over axis 0"),
        ("RS01", "dim 1 over axes 0 and 1"),
        ("S0R+P1", "dim 0 over axis 0, pending sum over axis 1"),
        ("RR+P01", "pending sum over axes 0 and 1"),
    ],
)
def test_a_spec_names_dims_and_axes(spec: str, words: str) -> None:
    assert spec_phrase(spec) == words


def test_a_spec_is_taken_apart() -> None:
    read = read_spec("S01RS2+P3")
    assert (read.dims, read.pending) == (((0, 1), (), (2,)), (3,))


def test_the_lines_of_a_tensor_say_what_one_device_holds() -> None:
    assert spec_lines("S0R", (8, 1024), (2, 4)) == (
        "dim 0 (8) over axis 0 → 4 each",
        "every device holds 4×1,024 of 8×1,024",
    )
    assert spec_lines("RS01", (8, 1024), (2, 4))[-1] == "every device holds 8×128 of 8×1,024"
    assert spec_lines("S0R", None, (2, 4)) == ("dim 0 over axis 0 → 1/2 each",)
    assert spec_lines("RR", (8, 1024), (2, 4)) == ("whole on every device",)
    assert spec_lines("RR+P0", (8, 8), (2,)) == (
        "pending sum over axis 0: every device holds an addend",
        "no dim is divided",
    )


@pytest.mark.parametrize(
    ("logical_mesh", "legend"),
    [
        ((1, 1), ""),
        ((1, 8), "S0: this dim is divided over mesh axis 0 (8 devices), R: whole, +P0: pending sum over axis 0."),
        (
            (2, 4),
            "S0: this dim is divided over mesh axis 0 (2 devices), S1: over axis 1 (4 devices), S01: over both, "
            "R: whole, +P0: pending sum over axis 0; P1: over axis 1.",
        ),
    ],
)
def test_the_legend_numbers_the_axes_of_more_than_one_device(logical_mesh: tuple[int, ...], legend: str) -> None:
    assert spec_legend(logical_mesh) == legend
    assert axis_sizes(logical_mesh) == tuple(size for size in logical_mesh if size > 1)
