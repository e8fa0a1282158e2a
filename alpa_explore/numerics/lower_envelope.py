"""The lower envelope of points (seconds, bytes) as a price for a byte rises, and the search for its corners.

At price p a point costs seconds + p · bytes, a line over p. The points that are cheapest at some price are the corners
of the lower convex hull of all points. They are found with one solve for each: at the price where two known points cost
the same, either another point is cheaper, or none lies between (Eisner and Severance, "Mathematical techniques for
efficient record segmentation in large shared databases", JACM 1976).
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

Figures = tuple[float, float]
"""(seconds, bytes), or any other pair that is traded against each other."""
Point = TypeVar("Point")


def crossing_price(fast: Figures, lean: Figures) -> float | None:
    """The price of a byte at which two points cost the same; None where the second has no fewer bytes.

    It is negative where the second point is faster as well.
    """
    saved = fast[1] - lean[1]
    return (lean[0] - fast[0]) / saved if saved > 0 else None


def search_between(
    fast: Point,
    lean: Point,
    *,
    figures: Callable[[Point], Figures],
    solve_at: Callable[[float], Point | None],
    may_solve: Callable[[], bool],
) -> None:
    """Solve between neighbouring corners of the lower convex hull, breadth first, from two of them on.

    `solve_at(price)` gives a cheapest point, or None; no more solves are made once `may_solve` is False. The points are
    collected by `solve_at`.
    """
    todo = [(fast, lean)]
    while todo and may_solve():
        quick, small = todo.pop(0)
        price = crossing_price(figures(quick), figures(small))
        # Nothing lies between two points of which one is better in both figures.
        if price is None or price <= 0:
            continue
        middle = solve_at(price)
        if middle is not None and middle not in (quick, small):
            todo += [(quick, middle), (middle, small)]


def highest_crossing(lines: Sequence[Figures]) -> float | None:
    """Of all p > 0 at which a rising line (b > 0) crosses one that does not rise, the one where min over lines (a, b)
    of a + p · b is greatest; None where there is no such crossing.

    The minimum is concave, so it is greatest there or at p = 0.
    """
    rising, falling = [line for line in lines if line[1] > 0], [line for line in lines if line[1] <= 0]
    tops = (
        (min(a + p * b for a, b in lines), p)
        for up in rising
        for down in falling
        if (p := crossing_price(up, down)) is not None and p > 0
    )
    return max(tops, default=(0.0, None))[1]
