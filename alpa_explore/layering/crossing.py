"""The tensors that can cross a cut between layers, and what a run of operators sends or receives.

Operators are forward operators by position 0 … K−1, in a topological order, so a tensor's readers come after its
producer. Only tensors that forward operators make count: parameters, buffers and the example inputs do not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from alpa_explore.graph import TrainingGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A tensor made by the operator at `producer` and read by those at `readers` (ascending, not empty)."""

    producer: int
    readers: tuple[int, ...]
    bytes: int


def crossings_of(graph: TrainingGraph) -> tuple[Crossing, ...]:
    """Every tensor that a forward operator makes and a later forward operator reads, each once."""
    count = len(graph.forward_operators)  # they come first, so that a position is an index
    found = []
    for operator in graph.forward_operators:
        for tensor in dict.fromkeys(operator.outputs):
            readers = graph.readers.get(tensor, ())
            if forward := readers[: bisect_left(readers, count)]:
                found.append(Crossing(producer=operator.index, readers=forward, bytes=graph.tensors[tensor].bytes))
    return tuple(found)


def crossing_bytes(graph: TrainingGraph) -> tuple[int, ...]:
    """For each forward operator, by position, the bytes that cross a cut just behind it (0 behind the last)."""
    change = [0] * (len(graph.forward_operators) + 1)
    for crossing in crossings_of(graph):
        change[crossing.producer] += crossing.bytes
        change[crossing.readers[-1]] -= crossing.bytes
    total, behind = 0, []
    for step in change[:-1]:
        total += step
        behind.append(total)
    return tuple(behind)


def produced_bytes(crossings: Sequence[Crossing], starts: Sequence[int], stops: Sequence[int]) -> list[int]:
    """C of Eq. 6 for each of the adjoining runs starts[j] … stops[j]−1: made inside, read outside."""
    totals = [0] * len(starts)
    for crossing in crossings:
        run = bisect_right(starts, crossing.producer) - 1
        if crossing.readers[-1] >= stops[run]:
            totals[run] += crossing.bytes
    return totals


def produced_changes(crossings: Sequence[Crossing]) -> Iterator[tuple[int, int, int, int]]:
    """(i, a, b, bytes): C(i, k) exceeds C(i+1, k) by `bytes` for a ≤ k < b. What o_i … o_k makes for later operators.

    A tensor of o_i leaves the run exactly when its last reader comes after k. C(i, i−1), the empty run, is 0.
    """
    for crossing in crossings:
        yield crossing.producer, crossing.producer, crossing.readers[-1], crossing.bytes


def received_changes(crossings: Sequence[Crossing], operators: int) -> Iterator[tuple[int, int, int, int]]:
    """The same for what o_i … o_k reads of earlier operators, each tensor once (what Alpa's code counts).

    At the start i = r of a reader, the tensor counts for every k ≥ r instead of from the next reader on; at the start
    i = producer it is made inside the run and counts no more.
    """
    for crossing in crossings:
        follower = operators
        for reader in reversed(crossing.readers):
            yield reader, reader, follower, crossing.bytes
            follower = reader
        yield crossing.producer, follower, operators, -crossing.bytes
