"""Two specs are one division exactly where real tensors, split by each of them, leave equal pieces on every device."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.sharding.spec import PARTIAL, legal_specs, render, tiling

SHAPE = (8, 8)
MESHES = ((1, 1), (1, 4), (4, 1), (2, 2), (1, 8), (2, 4), (4, 2), (2, 2, 2))
TENSOR = np.arange(64).reshape(SHAPE)
DIVISIONS = [
    (render(spec, 2), spec, mesh)
    for mesh in MESHES
    for spec in legal_specs(SHAPE, [size for size in mesh if size > 1], partial=True)
]


def split(spec, mesh):
    """What each device holds, row-major, by splitting along one axis of the mesh after the other: a slice of the
    tensor, and the run of a reduced dim of 64 whose sum is its addend."""
    held = [(TENSOR, np.arange(64))]
    for axis, placement in zip([size for size in mesh if size > 1], spec, strict=True):
        held = [
            part
            for values, summed in held
            for part in (
                list(zip([values] * axis, np.split(summed, axis), strict=True))
                if placement == PARTIAL
                else [(v, summed) for v in (np.split(values, axis, placement) if placement >= 0 else [values] * axis)]
            )
        ]
    return held


def equal(a, b):
    return len(a) == len(b) and all(
        np.array_equal(x, y) and np.array_equal(m, n) for (x, m), (y, n) in zip(a, b, strict=True)
    )


@given(st.sampled_from(DIVISIONS), st.sampled_from(DIVISIONS))
def test_equal_tilings_are_equal_pieces_of_real_tensors_on_every_device(one, other) -> None:
    (text, spec, mesh), (other_text, other_spec, other_mesh) = one, other
    same = tiling(text, mesh) == tiling(other_text, other_mesh)
    assert same == equal(split(spec, mesh), split(other_spec, other_mesh))


def test_every_pair_of_divisions_of_four_devices_is_judged_as_real_tensors_are() -> None:
    of_four = [(tiling(text, mesh), split(spec, mesh)) for text, spec, mesh in DIVISIONS if np.prod(mesh) == 4]
    pairs = list(product(of_four, repeat=2))
    assert all((a == b) == equal(x, y) for (a, x), (b, y) in pairs)
    assert sum(a == b for (a, _), (b, _) in pairs) > len(of_four), "some divisions have several names"


@pytest.mark.parametrize(("one", "other"), [(("·", (1, 4)), ("·", (2, 2))), (("S0R", (2, 1)), ("S0R", (1, 2)))])
def test_one_division_with_two_names(one, other) -> None:
    assert tiling(*one) == tiling(*other)


def test_pieces_are_in_the_order_of_the_devices_not_of_the_logical_mesh() -> None:
    assert tiling("S0R", (1, 4), (3, 2, 1, 0)) == tiling("S0R", (1, 4))[::-1]
    assert tiling("S0R", (1, 4), (4, 5, 6, 7)) == tiling("S0R", (1, 4))
