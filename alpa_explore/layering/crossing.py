"""The tensors that can cross a cut between layers, and the bytes that a run of operators sends or receives.

Forward operators are numbered 0 … K−1 in topological order, so the readers of a tensor come after its producer. Only
tensors produced by forward operators count: parameters, buffers and the example inputs do not.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from alpa_explore.graph import TrainingGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A tensor produced by operator `producer` and read by operators `readers` (ascending, not empty)."""

    producer: int
    readers: tuple[int, ...]
    bytes: int


def crossings_of(graph: TrainingGraph) -> tuple[Crossing, ...]:
    """Every tensor that a forward operator produces and a later forward operator reads, each once."""
    count = len(graph.forward_operators)  # they come first in the graph, so a position is an operator index
    crossings = []
    for operator in graph.forward_operators:
        for tensor in dict.fromkeys(operator.outputs):
            readers = graph.readers.get(tensor, ())
            if forward := readers[: bisect_left(readers, count)]:
                crossings.append(Crossing(producer=operator.index, readers=forward, bytes=graph.tensors[tensor].bytes))
    return tuple(crossings)


def crossing_bytes(graph: TrainingGraph) -> tuple[int, ...]:
    """For each forward operator the bytes that cross a cut directly after it (0 after the last)."""
    change = [0] * (len(graph.forward_operators) + 1)
    for crossing in crossings_of(graph):
        change[crossing.producer] += crossing.bytes
        change[crossing.readers[-1]] -= crossing.bytes
    total, after = 0, []
    for difference in change[:-1]:
        total += difference
        after.append(total)
    return tuple(after)


def produced_bytes(crossings: Sequence[Crossing], starts: Sequence[int], stops: Sequence[int]) -> list[int]:
    """C of Eq. 6 for each of the contiguous runs starts[j] … stops[j]−1: bytes produced inside and read outside."""
    totals = [0] * len(starts)
    for crossing in crossings:
        run = bisect_right(starts, crossing.producer) - 1
        if crossing.readers[-1] >= stops[run]:
            totals[run] += crossing.bytes
    return totals


def produced_changes(crossings: Sequence[Crossing]) -> Iterator[tuple[int, int, int, int]]:
    """(i, a, b, bytes): C(i, k) exceeds C(i+1, k) by `bytes` for a ≤ k < b, C being what o_i … o_k produces for others.

    A tensor of o_i leaves the run exactly when its last reader comes after k. C(i, i−1), of the empty run, is 0.
    """
    for crossing in crossings:
        yield crossing.producer, crossing.producer, crossing.readers[-1], crossing.bytes


def received_changes(crossings: Sequence[Crossing], operators: int) -> Iterator[tuple[int, int, int, int]]:
    """The same for C as the paper has it (§5.2): the bytes that o_i … o_k reads of earlier operators, each tensor once.

    For i = r, a reader, the tensor counts for every k ≥ r, where for i = r + 1 it counts only from the next reader on.
    For i = producer it is produced inside the run and no longer counts.
    """
    for crossing in crossings:
        follower = operators
        for reader in reversed(crossing.readers):
            yield reader, reader, follower, crossing.bytes
            follower = reader
        yield crossing.producer, follower, operators, -crossing.bytes
