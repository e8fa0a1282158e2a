"""Operator clustering straight from its definition, slow; the tests compare `dp` with it.

A direct transcription of Eq. 6 of Alpa (§5.2) over prefixes, in Python integers, followed by the tie-break as a second
recurrence over (sum of squares, cuts). It shares no code with dp.py.
"""

from collections.abc import Sequence
from fractions import Fraction

from alpa_explore.layering.crossing import Crossing


def cost(crossings: Sequence[Crossing], i: int, k: int, *, received: bool = False) -> int:
    """C(i, k) of the operators i … k (positions from 0, inclusive), from its definition."""
    inside = range(i, k + 1)
    total = 0
    for crossing in crossings:
        if received:
            counts = crossing.producer not in inside and any(reader in inside for reader in crossing.readers)
        else:
            counts = crossing.producer in inside and any(reader not in inside for reader in crossing.readers)
        total += crossing.bytes if counts else 0
    return total


def solve_reference(
    flops: Sequence[int],
    crossings: Sequence[Crossing],
    num_layers: int,
    delta: float,
    *,
    received: bool = False,
    least: float = 0.0,
) -> tuple[int, tuple[int, ...]] | None:
    """(G*, cuts), or None when no clustering into exactly `num_layers` layers is within the FLOP bounds."""
    operators = len(flops)
    limit = (1 + Fraction(str(delta))) * sum(flops) / num_layers
    floor = Fraction(str(least)) * sum(flops) / num_layers
    costs: dict[tuple[int, int], int] = {}
    """C of the layers within the FLOP bounds, by (start, stop) with the stop exclusive."""
    squares: dict[tuple[int, int], int] = {}
    for start in range(operators):
        weight = 0
        for stop in range(start + 1, operators + 1):
            weight += flops[stop - 1]
            if weight > limit:
                break
            if weight < floor:
                continue
            costs[start, stop] = cost(crossings, start, stop - 1, received=received)
            squares[start, stop] = weight * weight

    # G(k, r) of Eq. 6: the first k operators in r layers.
    g: dict[tuple[int, int], int] = {(0, 0): 0}
    for r in range(1, num_layers + 1):
        for k in range(r, operators + 1):
            values = [max(g[i, r - 1], costs[i, k]) for i in range(k) if (i, r - 1) in g and (i, k) in costs]
            if values:
                g[k, r] = min(values)
    if (operators, num_layers) not in g:
        return None
    objective = g[operators, num_layers]

    # Of the layers with C ≤ G*: the least sum of squares, then the smallest cuts. For a given last cut both are
    # decided by the prefix, so the recurrence is exact.
    most_even: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {(0, 0): (0, ())}
    for r in range(1, num_layers + 1):
        for k in range(r, operators + 1):
            ends = [
                (most_even[i, r - 1][0] + squares[i, k], most_even[i, r - 1][1] + ((i,) if i else ()))
                for i in range(k)
                if (i, r - 1) in most_even and costs.get((i, k), objective + 1) <= objective
            ]
            if ends:
                most_even[k, r] = min(ends)
    return objective, most_even[operators, num_layers][1]
