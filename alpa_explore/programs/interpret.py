"""The reference interpreter: all ranks of a program in one process, one iteration of training.

Ranks take turns; each goes on until it waits for a message or for the others of a collective. It is meant to be plainly
right, not fast: the runtime and every transformed plan are compared with it, and it with the sequential graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from alpa_explore.errors import ProgramError
from alpa_explore.programs.instruction import (
    Accumulate,
    Box,
    Collective,
    Compute,
    Free,
    Instruction,
    Load,
    Optimize,
    Receive,
    Send,
    Slice,
    Store,
)
from alpa_explore.programs.optimizer_step import PieceOptimizer
from alpa_explore.programs.program import Program
from alpa_explore.schedules.task import Action, Task
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.tracing.aten import run_operator

Values = Mapping[int, torch.Tensor]
"""Tensor of the graph -> its whole value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One iteration: what the sequential graph would have given, put together from the pieces of all ranks."""

    losses: tuple[float, ...]
    """Of each microbatch."""
    gradients: dict[int, torch.Tensor]
    """Place in `graph.parameters` -> mean over microbatches, whole."""
    parameters: dict[int, torch.Tensor]
    """The weights after the optimizer's step, whole."""
    most_values: int
    """The largest number of values of microbatches that one rank held at once."""


def interpret(
    program: Program, state: Values, microbatches: Sequence[Values], *, learning_rate: float = 1e-3, seed: int = 0
) -> Outcome:
    """Run one iteration. `state` holds parameters and buffers, each of `microbatches` its inputs, by tensor index.

    ProgramError when ranks wait for each other, or when copies of a weight or gradient differ between ranks.
    """
    if len(microbatches) != program.schedule.num_microbatches:
        raise ProgramError(
            "The program runs another number of microbatches",
            found=f"{len(microbatches)} given, B = {program.schedule.num_microbatches}",
            remedy="Give as many as the schedule has.",
        )
    run = _Run(program, state, microbatches, learning_rate, seed)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        run.all_ranks()
    return run.outcome()


@dataclass(slots=True)
class _Rank:
    lasting: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    """(stage, value)."""
    held: dict[tuple[int, int], dict[int, torch.Tensor]] = field(default_factory=dict)
    """(stage, microbatch) -> value -> tensor."""
    optimizers: dict[tuple[int, int], PieceOptimizer] = field(default_factory=dict)
    most_values: int = 0


class _Run:
    def __init__(
        self, program: Program, state: Values, microbatches: Sequence[Values], learning_rate: float, seed: int
    ) -> None:  # fmt: skip
        self.program, self.microbatches = program, microbatches
        self.learning_rate, self.seed = learning_rate, seed
        self.ranks = {rank: _Rank() for rank in program.ranks}
        self.mail: dict[tuple[int, int, int, int], torch.Tensor] = {}
        """(from, to, message, microbatch)."""
        self.gathered: dict[tuple[object, ...], dict[int, torch.Tensor]] = {}
        self.taken: dict[tuple[object, ...], int] = {}
        self.losses: dict[int, float] = {}
        self.gradients: dict[int, list[tuple[Box, torch.Tensor]]] = {}
        self.steps = 0
        for number, stage in enumerate(program.stages):
            for rank, lasting in stage.lasting.items():
                for one in lasting:
                    tensor = program.graph.tensors[one.tensor]
                    if one.zero:
                        shape = [stop - start for start, stop in one.box]
                        value = torch.zeros(shape, dtype=getattr(torch, tensor.dtype))
                    else:
                        value = _cut(state[one.tensor], one.box)
                    self.ranks[rank].lasting[number, one.value] = value

    def all_ranks(self) -> None:
        """Let ranks take turns until all are done."""
        active = {rank: self._tasks(rank) for rank in self.program.ranks}
        waiting: dict[int, str] = {}
        while active:
            before = self.steps
            for rank in list(active):
                try:
                    waiting[rank] = next(active[rank])
                except StopIteration:
                    del active[rank]
                    waiting.pop(rank, None)
                    self.steps += 1
            if self.steps == before:
                shown = "; ".join(f"rank {rank} waits for {what}" for rank, what in list(waiting.items())[:6])
                raise ProgramError("The program deadlocks", found=shown, remedy="Check it with programs.check.")

    def _tasks(self, rank: int) -> Iterator[str]:
        schedule = self.program.schedule
        own = [s for s, stage in enumerate(self.program.stages) if rank in stage.ranks]
        submesh = schedule.submesh_of_stage[own[0]]
        for task in (*schedule.order(submesh), *(Task(Action.UPDATE, s, 0) for s in own)):
            stage = self.program.stages[task.stage]
            for instruction in stage.tasks[task.action][rank]:
                yield from self._one(rank, task, instruction)
                self.steps += 1
            if task.action is Action.FORWARD and stage.loss is not None:
                value = self.ranks[rank].held[task.stage, task.microbatch][stage.loss]
                self.losses[task.microbatch] = float(value)

    def _one(self, rank: int, task: Task, instruction: Instruction) -> Iterator[str]:
        """Run one instruction; yields what is waited for as long as it has to wait."""
        me = self.ranks[rank]
        values = me.held.setdefault((task.stage, task.microbatch), {})

        def read(value: int) -> torch.Tensor:
            return values[value] if value in values else me.lasting[task.stage, value]

        def write(value: int, tensor: torch.Tensor) -> None:
            if (task.stage, value) in me.lasting:
                me.lasting[task.stage, value] = tensor
            else:
                values[value] = tensor

        match instruction:
            case Load():
                whole = self.microbatches[task.microbatch][instruction.tensor]
                write(instruction.target, _cut(whole, instruction.box))
            case Compute():
                if instruction.seed is not None:
                    torch.manual_seed(hash((self.seed, task.microbatch, *instruction.seed)))
                operator = instruction.operator
                made = run_operator(operator, {t: read(t) for t in operator.inputs})
                for target, tensor in zip(operator.outputs, made, strict=True):
                    write(target, tensor)
            case Collective():
                key = (task, instruction.ranks, instruction.target)
                self.gathered.setdefault(key, {})[rank] = read(instruction.source)
                while len(self.gathered[key]) < len(instruction.ranks):
                    yield f"{instruction.kind.value} {task} of ranks {instruction.ranks}"
                pieces = [self.gathered[key][other] for other in instruction.ranks]
                write(instruction.target, _collective(instruction, pieces, instruction.ranks.index(rank)))
                self.taken[key] = self.taken.get(key, 0) + 1
                if self.taken[key] == len(instruction.ranks):
                    del self.gathered[key], self.taken[key]
            case Slice():
                source = read(instruction.source)
                if instruction.pieces > 1:
                    source = torch.chunk(source, instruction.pieces, instruction.dim)[instruction.piece].contiguous()
                write(instruction.target, source)
            case Send():
                sent = _cut(read(instruction.source), instruction.box)
                self.mail[rank, instruction.to, instruction.message, task.microbatch] = sent
            case Receive():
                made_of = torch.empty(instruction.shape, dtype=getattr(torch, instruction.dtype))
                for source_rank, box in instruction.pieces:
                    letter = (source_rank, rank, instruction.message, task.microbatch)
                    while letter not in self.mail:
                        yield f"message {instruction.message} of rank {source_rank} in {task}"
                    made_of[tuple(slice(start, stop) for start, stop in box)] = self.mail.pop(letter)
                write(instruction.target, made_of)
            case Accumulate():
                write(instruction.target, read(instruction.target) + read(instruction.source))
            case Optimize():
                gradient = read(instruction.gradient) / self.program.schedule.num_microbatches
                weight = read(instruction.weight)
                self.gradients.setdefault(instruction.parameter, []).append((instruction.box, gradient))
                own = (task.stage, instruction.parameter)
                if own not in me.optimizers:
                    me.optimizers[own] = PieceOptimizer(instruction.kind, weight, self.learning_rate)
                write(instruction.target, me.optimizers[own].step(gradient))
            case Store():
                write(instruction.target, read(instruction.source))
            case Free():
                me.most_values = max(me.most_values, sum(map(len, me.held.values())))
                for value in instruction.values:
                    del values[value]

    def outcome(self) -> Outcome:
        """Pieces put together; copies must agree."""
        graph = self.program.graph
        held = {
            (stage, rank): one
            for stage, program in enumerate(self.program.stages)
            for rank in program.ranks
            for one in [self.ranks[rank].held]
        }
        left = [values for one in held.values() for values in one.values() if values]
        assert not left, "a program frees all values of its microbatches"
        parameters: dict[int, list[tuple[Box, torch.Tensor]]] = {}
        place = {p.tensor: i for i, p in enumerate(graph.parameters)}
        for number, stage in enumerate(self.program.stages):
            for rank, lasting in stage.lasting.items():
                for one in lasting:
                    if not one.zero and one.tensor in place:
                        piece = self.ranks[rank].lasting[number, one.value]
                        parameters.setdefault(place[one.tensor], []).append((one.box, piece))

        def whole(pieces: dict[int, list[tuple[Box, torch.Tensor]]], what: str) -> dict[int, torch.Tensor]:
            return {
                p: _whole(found, graph.tensors[graph.parameters[p].tensor].shape, f"{what} {graph.parameters[p].name}")
                for p, found in sorted(pieces.items())
            }

        return Outcome(
            losses=tuple(self.losses[m] for m in range(len(self.microbatches))),
            gradients=whole(self.gradients, "gradient"), parameters=whole(parameters, "parameter"),
            most_values=max(rank.most_values for rank in self.ranks.values()),
        )  # fmt: skip


def _cut(whole: torch.Tensor, box: Box) -> torch.Tensor:
    return whole[tuple(slice(start, stop) for start, stop in box)].clone()


def _collective(one: Collective, pieces: list[torch.Tensor], place: int) -> torch.Tensor:
    """What the rank at `place` of the group has afterwards."""
    if one.kind is StepKind.ALL_GATHER:
        assert one.joined is not None
        return torch.cat(pieces, one.joined)
    if one.kind is StepKind.ALL_TO_ALL:
        assert one.joined is not None
        assert one.cut is not None
        return torch.cat([torch.chunk(p, len(pieces), one.cut)[place] for p in pieces], one.joined)
    total = pieces[0].clone()
    for piece in pieces[1:]:
        total = total + piece
    if one.kind is StepKind.ALL_REDUCE:
        return total
    assert one.kind is StepKind.REDUCE_SCATTER
    assert one.cut is not None
    return torch.chunk(total, len(pieces), one.cut)[place].contiguous()


def _whole(pieces: list[tuple[Box, torch.Tensor]], shape: tuple[int, ...], name: str) -> torch.Tensor:
    made = torch.full(shape, float("nan"), dtype=pieces[0][1].dtype)
    seen: dict[Box, torch.Tensor] = {}
    for box, piece in pieces:
        if box in seen and not torch.equal(seen[box], piece):
            raise ProgramError(
                "Ranks that hold copies disagree", found=f"{name}, box {box}",
                remedy="A rule or a resharding is wrong: please report it with the plan.",
            )  # fmt: skip
        seen[box] = piece
        made[tuple(slice(start, stop) for start, stop in box)] = piece
    return made
