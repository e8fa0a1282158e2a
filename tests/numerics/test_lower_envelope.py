"""The lower envelope: the search finds every corner of the convex hull, and the highest crossing is its maximum."""

import random

import pytest

from alpa_explore.numerics.lower_envelope import crossing_price, highest_crossing, search_between


def cheapest(points, price):
    return min(points, key=lambda p: (p[0] + price * p[1], p))


def test_at_the_crossing_price_both_points_cost_the_same():
    fast, lean = (1.0, 10.0), (3.0, 6.0)
    price = crossing_price(fast, lean)
    assert price == 0.5
    assert fast[0] + price * fast[1] == lean[0] + price * lean[1]


def test_there_is_no_crossing_price_where_no_byte_is_saved():
    assert crossing_price((1.0, 2.0), (3.0, 2.0)) is None
    assert crossing_price((1.0, 2.0), (3.0, 5.0)) is None


@pytest.mark.parametrize("seed", range(50))
def test_the_search_finds_the_corners_of_the_convex_hull_and_stops_when_told(seed):
    rng = random.Random(seed)
    points = [(rng.uniform(0, 10), rng.uniform(0, 10)) for _ in range(rng.randrange(2, 40))]
    ends = min(points), min(points, key=lambda p: (p[1], p[0]))
    solved = []

    def solve_at(price):
        solved.append(cheapest(points, price))
        return solved[-1]

    search_between(*ends, figures=lambda p: p, solve_at=solve_at, may_solve=lambda: True)
    corners = {cheapest(points, 10 ** rng.uniform(-4, 4)) for _ in range(2_000)}
    assert corners <= {*ends, *solved}

    solves = len(solved)
    solved.clear()
    search_between(*ends, figures=lambda p: p, solve_at=solve_at, may_solve=lambda: len(solved) < 2)
    assert len(solved) == min(solves, 2)


@pytest.mark.parametrize("seed", range(50))
def test_the_highest_crossing_or_zero_is_the_maximum_of_the_lower_envelope(seed):
    rng = random.Random(seed)
    lines = [(rng.uniform(0, 5), rng.uniform(-3, 3)) for _ in range(rng.randrange(1, 12))]
    price = highest_crossing(lines)

    def envelope(p):
        return min(a + p * b for a, b in lines)

    top = envelope(0.0) if price is None else max(envelope(0.0), envelope(price))
    rises_for_ever = all(b > 0 for _, b in lines)
    assert rises_for_ever or all(envelope(10 ** rng.uniform(-3, 3)) <= top + 1e-9 for _ in range(500))
