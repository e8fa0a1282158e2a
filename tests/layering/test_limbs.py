"""Two-limb squares equal Python's whole numbers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.layering import limbs

numbers = st.integers(0, limbs.LIMIT - 1) | st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**31 + 1, limbs.LIMIT - 1])


def value(pair) -> list[int]:
    assert (pair[1] >= 0).all()
    assert (pair[1] < limbs.BASE).all()
    return [h * limbs.BASE + low for h, low in zip(pair[0].tolist(), pair[1].tolist(), strict=True)]


@given(st.lists(numbers, min_size=1, max_size=8))
def test_a_square_is_exact(xs):
    assert value(limbs.square(np.array(xs, dtype=np.int64))) == [x * x for x in xs]


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8))
def test_a_sum_of_squares_is_exact(pairs):
    a, b = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True))
    assert value(limbs.add(limbs.square(a), limbs.square(b))) == [x * x + y * y for x, y in pairs]


@given(st.lists(numbers, min_size=1, max_size=8), st.integers(0, 7))
def test_the_first_of_the_smallest_numbers_is_found(xs, repeat):
    xs = [*xs, xs[repeat % len(xs)]]
    squares = limbs.square(np.array(xs, dtype=np.int64))
    assert limbs.argmin(squares) == xs.index(min(xs))


def test_numbers_that_differ_only_in_the_low_limb_are_distinguished():
    pair = np.array([5, 5, 5]), np.array([9, 3, 4])
    assert limbs.argmin(pair) == 1
