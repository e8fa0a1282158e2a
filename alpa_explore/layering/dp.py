"""Operator clustering, Eq. 6 of Alpa (arXiv 2201.12023, §5.2), exact.

    G(k, r) = min over i of max( G(i, r−1), C(i+1, k) ),   FLOP(i+1 … k) ≤ (1 + delta) · FLOP_total / L

A lower bound beside it, FLOP(i+1 … k) ≥ least · FLOP_total / L, is an addition: it keeps out layers that do next to
nothing, with which Eq. 6 separates an embedding, masks and position tables from the block that they belong to, since a
layer then produces fewer bytes. It is 0 in the paper.

C(i, k) is the bytes of the distinct tensors that o_i … o_k produce and forward operators outside read. The result has
exactly L layers. It minimises, lexicographically: G* = G(K, L); the sum of squared layer FLOPs (the mean is fixed, so
this is the variance, the paper's tie-break); the tuple of cuts. The tie-break does not decompose inside Eq. 6 (a prefix
with a larger G may belong to a more even clustering), so it is a second pass over the layers with C ≤ G*.

Both passes run over suffixes, from the last operator to the first. Row i of C then follows from row i+1 by a few range
additions (crossing.py), so only one row is kept in memory, and taking the first of equal minima gives the smallest
cuts. All arithmetic is on integers; delta is the decimal fraction that it is written as.

No layer begins within a run of operators that belongs in one stage (`graph.written.unbroken`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from alpa_explore.errors import BalanceError, LayeringError
from alpa_explore.graph import TrainingGraph
from alpa_explore.graph.written import listed, unbroken
from alpa_explore.layering import limbs
from alpa_explore.layering.balance import check_num_layers, flops_floor, flops_limit, too_tight
from alpa_explore.layering.crossing import Crossing, crossings_of, produced_changes, received_changes
from alpa_explore.layering.layers import Layering, make_layers
from alpa_explore.numerics.arrays import Ints

_NEVER = np.iinfo(np.int64).max
"""G of a suffix that has no feasible clustering into that many layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustering:
    """The result of `solve`: the positions at which layers 1, 2, … begin, G*, and the FLOP limit."""

    cuts: tuple[int, ...]
    objective_bytes: int
    flops_limit: int


def cluster_operators(
    graph: TrainingGraph, num_layers: int, delta: float = 0.5, received: bool = False, least: float = 0.0
) -> Layering:
    """Cluster the forward operators of `graph` into exactly `num_layers` layers by Eq. 6.

    Every layer has at least the share `least` of the mean FLOPs. `received` counts the bytes that a layer receives
    instead of those it produces for others, as the paper (§5.2) has it.
    OptionError: fewer than one layer, a delta that is negative or not finite, a least share outside 0 … 1.
    LayeringError: more layers than operators, or an infeasible delta (the message names the smallest feasible one).
    """
    flops = np.array([operator.flops for operator in graph.forward_operators], dtype=np.int64)
    crossings, runs = crossings_of(graph), unbroken(graph)
    whole = [(first, last) for _, first, last in runs]
    try:
        found = solve(flops, crossings, num_layers, delta, received=received, least=least, whole=whole)
    except BalanceError as error:
        if not whole:
            raise
        solve(flops, crossings, num_layers, delta, received=received, least=least)  # the balance alone may be at fault
        raise LayeringError(
            f"No clustering into {num_layers} layers keeps together what writes a buffer and what reads it",
            found=f"delta = {delta}, {listed([name for name, _, _ in runs])}, on which later losses depend",
            remedy="Choose fewer layers or a larger delta.",
        ) from error
    return make_layers(graph, found.cuts)


def solve(
    flops: Ints,
    crossings: Sequence[Crossing],
    num_layers: int,
    delta: float,
    *,
    received: bool = False,
    least: float = 0.0,
    whole: Sequence[tuple[int, int]] = (),
) -> Clustering:
    """Eq. 6 on plain numbers: `flops` of the K operators, the tensors that can cross a cut, and the runs (first, last)
    of operators in which no layer begins but at the first. Errors as above."""
    operators = len(flops)
    check_num_layers(num_layers, operators)
    total = sum(flops.tolist())  # Python integers: an int64 sum could overflow silently
    if total >= limbs.LIMIT:
        raise LayeringError(
            "The forward FLOPs are too many to balance exactly",
            found=f"{total} in one microbatch; the limit is 2^61",
            remedy="Use a smaller microbatch.",
        )
    limit = flops_limit(total, num_layers, delta)
    windows = _windows(flops, flops_floor(total, num_layers, least), min(limit, total))
    for start, end in whole:
        windows.last[start + 1 : end + 1] = windows.first[start + 1 : end + 1] - 1
    changes = produced_changes(crossings) if not received else received_changes(crossings, operators)
    rows = _Rows(operators, changes)
    objective = _least_objective(rows, windows, num_layers)
    if objective is None:
        raise too_tight(flops, num_layers, delta, least)
    cuts = _most_even_cuts(rows, windows, flops, num_layers, objective)
    return Clustering(cuts=cuts, objective_bytes=objective, flops_limit=limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Windows:
    """For each start i the stops (exclusive) of the shortest and the longest layer o_i … within the FLOP bounds."""

    first: Ints
    """Beyond the last operator where no layer has enough."""
    last: Ints


def _windows(flops: Ints, floor: int, limit: int) -> _Windows:
    before = np.concatenate(([0], np.cumsum(flops)))
    return _Windows(
        first=np.maximum(np.searchsorted(before, before[:-1] + floor, side="left"), np.arange(1, len(before))),
        last=np.searchsorted(before, before[:-1] + limit, side="right") - 1,
    )


class _Rows:
    """Rows of C, from the last operator to the first."""

    def __init__(self, operators: int, changes: Iterator[tuple[int, int, int, int]]) -> None:
        self.operators = operators
        self._changes: list[list[tuple[int, int, int]]] = [[] for _ in range(operators)]
        for i, first, stop, size in changes:
            self._changes[i].append((first, stop, size))

    def __iter__(self) -> Iterator[tuple[int, Ints]]:
        """(i, C(i, ·)) for i = K−1 … 0; the row is one array, updated in place between steps."""
        row = np.zeros(self.operators, dtype=np.int64)
        for i in range(self.operators - 1, -1, -1):
            for first, stop, size in self._changes[i]:
                row[first:stop] += size
            yield i, row


def _least_objective(rows: _Rows, windows: _Windows, num_layers: int) -> int | None:
    """G* by Eq. 6 over suffixes; None when no clustering is within the FLOP bounds. best[r, i]: G of o_i … in r
    layers."""
    operators = rows.operators
    best = np.full((num_layers + 1, operators + 1), _NEVER, dtype=np.int64)
    best[0, operators] = 0
    for i, row in rows:
        first, last = windows.first[i], windows.last[i]
        if first <= last:
            best[1:, i] = np.maximum(best[:-1, first : last + 1], row[first - 1 : last]).min(axis=1)
    objective = int(best[num_layers, 0])
    return None if objective == _NEVER else objective


def _most_even_cuts(rows: _Rows, windows: _Windows, flops: Ints, num_layers: int, objective: int) -> tuple[int, ...]:
    """The cuts with the least Σ (layer FLOPs)² among clusterings with every C ≤ `objective`; of equal ones the
    smallest.

    high, low [r, i] are the two limbs of the least sum of squares of o_i … in r layers; next_start[r, i] is the start
    of the second of those layers (the backtracking pointer).
    """
    operators = rows.operators
    before = np.concatenate(([0], np.cumsum(flops)))
    high = np.full((num_layers + 1, operators + 1), limbs.INFINITY, dtype=np.int64)
    low = np.zeros_like(high)
    high[0, operators] = 0
    next_start = np.zeros((num_layers + 1, operators + 1), dtype=np.int64)
    counts = np.arange(num_layers)
    for i, row in rows:
        first = windows.first[i]
        starts = first + np.flatnonzero(row[first - 1 : windows.last[i]] <= objective)
        if starts.size:
            squares = limbs.square(before[starts] - before[i])
            sums = limbs.add((high[:-1, starts], low[:-1, starts]), squares)
            choice = limbs.argmin(sums)
            next_start[1:, i] = starts[choice]
            high[1:, i] = np.minimum(sums[0][counts, choice], limbs.INFINITY)
            low[1:, i] = sums[1][counts, choice]
    cuts, place = [], 0
    for r in range(num_layers, 1, -1):
        place = int(next_start[r, place])
        cuts.append(place)
    return tuple(cuts)
