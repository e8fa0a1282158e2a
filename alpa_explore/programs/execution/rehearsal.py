"""Execute every task of a rank once on tensors without memory (torch's meta device).

The result is the memory that each task needs and the collectives that it runs. A task does the same for every
microbatch, so rehearsing it for one microbatch is enough: it changes the bytes that the rank holds, and exceeds the
bytes at its start, by the same amounts, and the order of the tasks gives the peak of the rank:

    peak = max over tasks k of (weights and sums + Σ_{j<k} change_j + peak_k)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch

from alpa_explore.graph import TensorKind
from alpa_explore.programs.execution.execute import Arriving, RankExecutor, Values
from alpa_explore.programs.program import Box, Collective, Count, Program, Receive, Send
from alpa_explore.schedules.task import Action, Task
from alpa_explore.sharding.reshard import StepKind

META = torch.device("meta")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCall:
    """A collective and the bytes of its larger side (input or output) on one device, as in `cost.collectives`."""

    kind: StepKind
    ranks: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """The memory and the collectives of one task."""

    change_bytes: int
    """By how much the bytes that the rank holds grow over the task."""
    peak_bytes: int
    """The peak during the task, above the bytes held at its start."""
    collectives: tuple[CollectiveCall, ...]


Rehearsal: TypeAlias = Mapping[tuple[int, Action], Rehearsed]
"""(stage, action) -> the task."""


def rehearse(program: Program, rank: int) -> tuple[RankExecutor, Rehearsal]:
    """Rehearse the tasks of a rank; also returns the executor of the rank in its state after all tasks."""
    inputs, transport = _empty(program, inputs=True), _MetaTransport()
    executor = RankExecutor(
        program, rank, transport, _empty(program, inputs=False), learning_rate=0.0, seed=0, device=META
    )
    memory, rehearsed = executor.memory, dict[tuple[int, Action], Rehearsed]()
    for stage in executor.stages:
        for action, instructions in program.stages[stage].tasks.items():
            before, memory.peak_bytes = memory.now_bytes, memory.now_bytes
            transport.collectives.clear()
            task = Task(action, stage, 0)
            for instruction in instructions[rank]:
                if isinstance(instruction, Count):
                    executor.counts[instruction.loss] = torch.empty((), device=META)
                for _ in executor.execute(task, instruction, lambda _: inputs) or ():
                    raise AssertionError("nothing is waited for")
            rehearsed[stage, action] = Rehearsed(
                change_bytes=memory.now_bytes - before,
                peak_bytes=memory.peak_bytes - before,
                collectives=tuple(transport.collectives),
            )
    return executor, rehearsed


def _empty(program: Program, *, inputs: bool) -> Values:
    return {
        t.index: torch.empty(t.shape, dtype=getattr(torch, t.dtype), device=META)
        for t in program.graph.tensors
        if t.producer is None or not inputs
        if (t.kind is TensorKind.INPUT) is inputs
    }


class _MetaTransport:
    """A transport without other ranks, whose results have the right shape."""

    def __init__(self) -> None:
        self.collectives: list[CollectiveCall] = []

    def collective(self, task: Task, instruction: Collective, piece: torch.Tensor, *sizes: torch.Tensor) -> Arriving:
        shape, count = list(piece.shape), len(instruction.ranks)
        if instruction.kind in (StepKind.ALL_GATHER, StepKind.ALL_TO_ALL) and instruction.joined is not None:
            shape[instruction.joined] *= count
        if instruction.kind in (StepKind.REDUCE_SCATTER, StepKind.ALL_TO_ALL) and instruction.cut is not None:
            shape[instruction.cut] //= count
        result = piece.new_empty(shape)
        self.collectives.append(
            CollectiveCall(kind=instruction.kind, ranks=instruction.ranks, bytes=max(piece.nbytes, result.nbytes))
        )
        return result
        yield ""

    def send(self, task: Task, instruction: Send, piece: torch.Tensor) -> None:
        """Nobody receives it."""

    def receive(self, task: Task, instruction: Receive, source: int, box: Box) -> Arriving:
        extents = [stop - start for start, stop in box]
        return torch.empty(extents, dtype=getattr(torch, instruction.dtype), device=META)
        yield ""


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
