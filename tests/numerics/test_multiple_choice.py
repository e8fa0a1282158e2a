"""One item of each class at the least cost, against brute force, and where brute force would take years."""

import math
from itertools import product

import numpy as np
import pytest

from alpa_explore.numerics.multiple_choice import cheapest_within


def brute_force(classes, capacity):
    """The least cost of all choices that fit."""
    ways = [(sum(cost for cost, _ in way), sum(size for _, size in way)) for way in product(*classes)]
    return min((cost for cost, size in ways if size <= capacity), default=math.inf)


@pytest.mark.parametrize("seed", range(30))
def test_the_choice_is_that_of_brute_force(seed):
    draw = np.random.default_rng(seed)
    rounded = seed % 3  # ties of cost and size
    classes = [
        [tuple(np.round(draw.random(2), 1 if rounded else 12).tolist()) for _ in range(draw.integers(1, 7))]
        for _ in range(draw.integers(1, 6))
    ]
    found = 0
    for capacity in np.linspace(0.0, len(classes), 40).tolist():
        cost, items = cheapest_within(classes, capacity)
        expected = brute_force(classes, capacity)
        assert cost == pytest.approx(expected, rel=1e-8)
        if items:
            chosen = [of_class[n] for of_class, n in zip(classes, items, strict=True)]
            assert sum(size for _, size in chosen) <= capacity + 1e-12
            assert sum(cost for cost, _ in chosen) == pytest.approx(cost)
            assert cheapest_within(classes, capacity, below=cost) == (math.inf, ())
            assert cheapest_within(classes, capacity, below=cost * 1.01)[0] == cost
        found += bool(items)
    assert found > 10


def test_equal_classes_of_many_items_do_not_multiply():
    """Fault of 0.1.0: with eight turns of a hundred choices `plan -B auto` of Mixtral on 4x8 did not end."""
    draw = np.random.default_rng(0)
    sizes = np.sort(draw.random(100))[::-1]
    of_class = [(1.0 + 0.1 * n / 100 + 0.01 * draw.random(), size) for n, size in enumerate(sizes.tolist())]
    cost, items = cheapest_within([of_class] * 8, 4.0)
    assert len(items) == 8
    # Less than one step of one class above the relaxation.
    lower = max(
        8 * min(c + price * s for c, s in of_class) - price * 4.0 for price in np.linspace(0.0, 2.0, 2001).tolist()
    )
    assert lower <= cost <= lower * 1.001
