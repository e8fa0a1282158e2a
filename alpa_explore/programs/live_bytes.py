"""What each rank holds at most, without running it: every task once on tensors without memory (torch's meta device).

A task of a kind changes what a rank holds by the same bytes for every microbatch, and exceeds what it starts with by
the same peak. So the tasks of one microbatch are measured, and the schedule adds them up:

    peak = max over tasks k of (weights and sums + Σ_{j<k} change_j + peak_k)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from alpa_explore.graph import TensorKind
from alpa_explore.programs.execute import Arriving, RankExecutor, Values
from alpa_explore.programs.instruction import Box, Collective, Count, Receive, Send
from alpa_explore.programs.program import Program
from alpa_explore.schedules.task import Action, Task
from alpa_explore.sharding.reshard import StepKind

META = torch.device("meta")


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
    state = _empty(program, inputs=False)
    inputs = _empty(program, inputs=True)
    return {rank: _of_rank(program, rank, state, inputs) for rank in program.ranks}


def _of_rank(program: Program, rank: int, state: Values, inputs: Values) -> LiveBytes:
    executor = RankExecutor(program, rank, _Nowhere(), state, learning_rate=0.0, seed=0, device=META)
    memory = executor.memory
    lasting = memory.now_bytes
    effects: dict[tuple[int, Action], tuple[int, int]] = {}
    for stage in executor.stages:
        for action, instructions in program.stages[stage].tasks.items():
            before, memory.peak_bytes = memory.now_bytes, memory.now_bytes
            task = Task(action, stage, 0)
            for instruction in instructions[rank]:
                if isinstance(instruction, Count):
                    executor.counts[instruction.loss] = torch.empty((), device=META)
                for _ in executor.one(task, instruction, lambda _: inputs):
                    raise AssertionError("nothing is waited for")
            effects[stage, action] = (memory.now_bytes - before, memory.peak_bytes - before)
    now = peak = lasting
    for task in program.order(rank):
        change, most = effects[task.stage, task.action]
        peak = max(peak, now + most)
        now += change
    graph = program.graph
    state_bytes = sum(
        graph.parameters[parameter].state_bytes_per_element * gradient.numel()
        for parameter, _, gradient in executor.gradients
    )
    return LiveBytes(lasting_bytes=lasting, peak_bytes=peak, optimizer_bytes=state_bytes)


def _empty(program: Program, *, inputs: bool) -> dict[int, torch.Tensor]:
    return {
        t.index: torch.empty(t.shape, dtype=getattr(torch, t.dtype), device=META)
        for t in program.graph.tensors
        if t.producer is None or not inputs
        if (t.kind is TensorKind.INPUT) is inputs
    }


class _Nowhere:
    """A transport without other ranks: what would come has the right shape."""

    def collective(self, task: Task, one: Collective, piece: torch.Tensor) -> Arriving:
        shape, count = list(piece.shape), len(one.ranks)
        if one.kind in (StepKind.ALL_GATHER, StepKind.ALL_TO_ALL) and one.joined is not None:
            shape[one.joined] *= count
        if one.kind in (StepKind.REDUCE_SCATTER, StepKind.ALL_TO_ALL) and one.cut is not None:
            shape[one.cut] //= count
        return piece.new_empty(shape)
        yield ""

    def send(self, task: Task, one: Send, piece: torch.Tensor) -> None:
        """It is gone."""

    def receive(self, task: Task, one: Receive, source: int, box: Box) -> Arriving:
        extents = [stop - start for start, stop in box]
        return torch.empty(extents, dtype=getattr(torch, one.dtype), device=META)
        yield ""
