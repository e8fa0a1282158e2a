"""What each rank holds at most, without running it: every task is rehearsed once, and the schedule adds them up.

A task of a kind changes what a rank holds by the same bytes for every microbatch, and exceeds what it starts with by
the same peak:

    peak = max over tasks k of (weights and sums + Σ_{j<k} change_j + peak_k)
"""

from __future__ import annotations

from dataclasses import dataclass

from alpa_explore.programs.execution.rehearsal import rehearse
from alpa_explore.programs.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBytes:
    """Bytes of the values of one rank; what its optimizer keeps comes on top."""

    lasting_bytes: int
    """Weights, buffers and sums of gradients."""
    peak_bytes: int
    """The most that is held at once, those included."""
    optimizer_bytes: int
    """Moments and master copies of what it updates."""


def live_bytes(program: Program) -> dict[int, LiveBytes]:
    """For every rank."""
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
        graph.parameters[parameter].state_bytes_per_element * gradient.numel()
        for parameter, _, gradient in executor.gradients
    )
    return LiveBytes(lasting_bytes=lasting, peak_bytes=peak, optimizer_bytes=state_bytes)
