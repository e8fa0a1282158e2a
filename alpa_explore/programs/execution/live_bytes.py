"""The peak memory of each rank, computed without running the program.

Every task is rehearsed once on tensors without memory (`rehearsal`). A task changes the bytes that the rank holds, and
exceeds the bytes at its start, by the same amounts for every microbatch, so the order of the tasks gives the peak:

    peak = max over tasks k of (weights and sums + Σ_{j<k} change_j + peak_k)
"""

from dataclasses import dataclass

from alpa_explore.programs.execution.rehearsal import rehearse
from alpa_explore.programs.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBytes:
    """Bytes of the values of one rank, and of its optimizer state."""

    lasting_bytes: int
    """Weights, buffers and sums of gradients."""
    peak_bytes: int
    """Peak bytes of all values, those included; without optimizer state."""
    optimizer_bytes: int
    """Moments and master copies of the weights that the rank updates."""


def live_bytes(program: Program) -> dict[int, LiveBytes]:
    """Rank -> its memory, for every rank."""
    return {rank: _of_rank(program, rank) for rank in program.ranks}


def _of_rank(program: Program, rank: int) -> LiveBytes:
    executor, tasks = rehearse(program, rank)
    lasting = executor.memory.now_bytes - sum(task_bytes.change_bytes for task_bytes in tasks.values())
    now = peak = lasting
    for task in program.order(rank):
        task_bytes = tasks[task.stage, task.action]
        peak = max(peak, now + task_bytes.peak_bytes)
        now += task_bytes.change_bytes
    graph = program.graph
    state_bytes = sum(
        int(graph.parameters[parameter].state_bytes_per_element) * gradient.numel()
        for parameter, _, gradient in executor.gradients
    )
    return LiveBytes(lasting_bytes=lasting, peak_bytes=peak, optimizer_bytes=state_bytes)
