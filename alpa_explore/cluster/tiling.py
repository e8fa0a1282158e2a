"""Sizes of parts that tile a whole: into which pieces may a node, or a pod of nodes, be divided?

A set of sizes tiles `count` units if every collection of such pieces that adds up to a multiple of `count` can be
sorted into groups of exactly `count`. The planner relies on it: its DP counts devices, and the stages that it chooses
must then have a place. Powers of two tile a power of two (Alpa, appendix A, theorem 1); so does any chain of sizes that
divide each other. Of 6, 12 or 72 all divisors do, of 30 they do not: 15 + 2 · 10 + 4 · 6 + 1 is 60, and no part of it
is 30.

Whether sizes tile is decided exactly. Where e is a multiple of d and both are sizes, e/d pieces of d can be joined to
one of e; so only collections have to be looked at that hold fewer than e/d pieces of d, and these are finite in number.
"""

import itertools
import math
from collections.abc import Sequence
from functools import cache

MOST_COLLECTIONS = 12_000
"""Collections of pieces that are looked at to decide whether sizes tile: 4,608 for 72 devices, 11,520 for 60; beyond
this the decision takes seconds, and sizes that divide each other are used."""


# Memo of a pure function.
@cache
def tile_sizes(count: int) -> tuple[int, ...]:
    """Sizes of pieces that tile `count` units, ascending: all divisors where these do, else as many as do."""
    divisors = tuple(d for d in range(1, count + 1) if count % d == 0)
    if _tile(divisors, count):
        return divisors
    sizes = _chain(count)
    for d in divisors:
        if d not in sizes and _tile(more := tuple(sorted((*sizes, d))), count):
            sizes = more
    return sizes


def power_of_two_sizes(count: int) -> tuple[int, ...]:
    """The powers of two among the divisors of `count`, and `count`: they divide each other, so they tile."""
    powers = tuple(1 << k for k in range(count.bit_length()) if count % (1 << k) == 0)
    return powers if powers[-1] == count else (*powers, count)


def sort_into_groups(pieces: Sequence[int], count: int) -> list[list[int]] | None:
    """Indices of `pieces` in groups that each add up to `count`; None if there is no such division.

    Equal pieces that lie next to each other in the order given are kept together where that is possible.
    """
    joined = [(size, [index]) for index, size in enumerate(pieces)]
    sizes = sorted({*tile_sizes(count), *pieces})
    for size in sizes[:-1]:
        larger = next((e for e in sizes if e > size and e % size == 0 and e <= count), None)
        if larger is None:
            continue
        several = larger // size
        equal = [item for item in joined if item[0] == size]
        whole = len(equal) // several * several
        blocks = [
            (larger, [index for _, indices in equal[at : at + several] for index in indices])
            for at in range(0, whole, several)
        ]
        joined = [item for item in joined if item[0] != size] + blocks + equal[whole:]
    groups = _search(sorted(joined, reverse=True), count)
    return None if groups is None else sorted(sorted(indices) for indices in groups)


def _search(items: list[tuple[int, list[int]]], count: int) -> list[list[int]] | None:
    """The items, largest first, in groups of `count`: the largest is put into a group, then the rest is divided."""
    if not items:
        return []
    first, rest = items[0], items[1:]
    for chosen in _completions(rest, count - first[0], 0):
        left = [item for place, item in enumerate(rest) if place not in chosen]
        others = _search(left, count)
        if others is not None:
            return [first[1] + [index for place in chosen for index in rest[place][1]], *others]
    return None


def _completions(items: list[tuple[int, list[int]]], missing: int, start: int) -> list[tuple[int, ...]]:
    """Places of items that add up to `missing`, without those that differ only in which of equal items they take."""
    if missing == 0:
        return [()]
    found = []
    tried = set[int]()
    for place in range(start, len(items)):
        size = items[place][0]
        if size <= missing and size not in tried:
            tried.add(size)
            found += [(place, *more) for more in _completions(items, missing - size, place + 1)]
    return found


def _tile(sizes: tuple[int, ...], count: int) -> bool:
    small = sizes[:-1]
    most = [min(e // d for e in sizes if e > d and e % d == 0) - 1 for d in small]
    if math.prod(m + 1 for m in most) > MOST_COLLECTIONS:
        return False
    for numbers in itertools.product(*(range(m + 1) for m in most)):
        total = sum(n * d for n, d in zip(numbers, small, strict=True))
        if total > count and total % count == 0:
            items = [(d, [0]) for n, d in zip(reversed(numbers), reversed(small), strict=True) for _ in range(n)]
            if _search(items, count) is None:
                return False
    return True


def _chain(count: int) -> tuple[int, ...]:
    """Sizes that divide each other, doubled as long as that is possible: 1, 2, 4, 12, 60 for 60."""
    chain, left, factor = [1], count, 2
    while left > 1:
        if left % factor:
            factor += 1
        else:
            left //= factor
            chain.append(chain[-1] * factor)
    return tuple(chain)
