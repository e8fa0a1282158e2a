"""The multiple-choice knapsack problem, exactly: one item of each class, at the least cost, within a capacity.

Items are (cost, size). The linear relaxation goes from the cheapest item of each class along the convex parts of the
classes, where a unit of size costs least, until all fit. What the last unit costs is a price of size, by which partial
choices that cannot lead to the optimum are left (Kellerer, Pferschy and Pisinger, Knapsack Problems, 2004, chapter 11).
"""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

_SAME = 1e-9
"""A lower cost by a smaller share is taken for rounding."""


class _Choice(NamedTuple):
    """Items of some classes together."""

    cost: float
    size: float
    items: tuple[int, ...]


def cheapest_within(
    classes: Sequence[Sequence[tuple[float, float]]], capacity: float, *, below: float = math.inf
) -> tuple[float, tuple[int, ...]]:
    """(least cost, the item of each class) of the choices whose sizes sum up to `capacity` at most; (inf, ()) where
    there is none, or none that costs less than `below`."""
    ways = [_undominated(_Choice(cost, size, (n,)) for n, (cost, size) in enumerate(of_class)) for of_class in classes]
    price, best = _relaxed(ways, capacity)
    if best.size > capacity:
        return math.inf, ()
    priced, least = [0.0], [0.0]  # of the classes that follow
    for of_class in reversed(ways):
        priced.append(priced[-1] + min(way.cost + price * way.size for way in of_class))
        least.append(least[-1] + of_class[-1].size)
    enough = min(below, best.cost) * (1.0 - _SAME) + price * capacity
    known = [_Choice(0.0, 0.0, ())]
    for of_class, later, smallest in zip(ways, priced[-2::-1], least[-2::-1], strict=True):
        known = _undominated(
            _Choice(before.cost + way.cost, size, (*before.items, *way.items))
            for before in known
            for way in of_class
            if (size := before.size + way.size) + smallest <= capacity
            and before.cost + way.cost + price * size + later < enough
        )
    best = min([best, *known[:1]], key=lambda way: way.cost)
    return (best.cost, best.items) if best.cost < below else (math.inf, ())


def _undominated(choices: Iterable[_Choice]) -> list[_Choice]:
    """Those of which no other is as cheap and as small, cheapest first."""
    ordered = sorted(choices)
    least = accumulate((way.size for way in ordered), min, initial=math.inf)
    return [way for way, before in zip(ordered, least, strict=False) if way.size < before]


def _relaxed(classes: Sequence[Sequence[_Choice]], capacity: float) -> tuple[float, _Choice]:
    """The price of size, and the first items along the relaxation that fit; the smallest where these do not."""
    places, price = [0] * len(classes), 0.0
    size = sum(of_class[0].size for of_class in classes)
    for cost, number, place in sorted(step for n, ways in enumerate(classes) for step in _steps(n, ways)):
        if size <= capacity:
            break
        size += classes[number][place].size - classes[number][places[number]].size
        places[number], price = place, cost
    chosen = [of_class[place] for of_class, place in zip(classes, places, strict=True)]
    items = tuple(way.items[0] for way in chosen)
    return price, _Choice(sum(way.cost for way in chosen), sum(way.size for way in chosen), items)


def _steps(number: int, ways: Sequence[_Choice]) -> list[tuple[float, int, int]]:
    """(cost of a unit of size that is saved, class, place in it) of each corner of the convex part of a class."""
    corners, slopes = [0], list[float]()
    for place, way in enumerate(ways[1:], 1):
        while True:
            last = ways[corners[-1]]
            slope = (way.cost - last.cost) / (last.size - way.size)
            if not slopes or slope > slopes[-1]:
                break
            corners.pop()
            slopes.pop()
        corners.append(place)
        slopes.append(slope)
    return [(slope, number, place) for slope, place in zip(slopes, corners[1:], strict=True)]
