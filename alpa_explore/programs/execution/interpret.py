"""The reference interpreter: one training iteration of a program, all ranks in one process.

The ranks take turns; each continues until it waits for a message or for the other ranks of a collective. The
interpreter is meant to be obviously correct, not fast: it is compared with the sequential graph, and the runtime and
all transformed plans are compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from alpa_explore.arguments import checked
from alpa_explore.errors import ProgramError
from alpa_explore.programs.execution.execute import Arriving, RankExecutor, Values, Waiting
from alpa_explore.programs.program import Box, Collective, Program, Receive, Send
from alpa_explore.schedules.task import Task
from alpa_explore.sharding.local.steps import Reduction
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.tracing.evaluate import initial_weights, input_values
from alpa_explore.tracing.inputs.example import microbatch_tensors
from alpa_explore.tracing.inputs.losses import Loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results of one iteration, assembled from the pieces of all ranks; comparable with the sequential graph."""

    losses: tuple[float, ...]
    """Loss of each microbatch."""
    gradients: dict[int, torch.Tensor]
    """Index in `graph.parameters` -> mean gradient over the microbatches."""
    parameters: dict[int, torch.Tensor]
    """Index in `graph.parameters` -> weight after the optimizer step."""
    most_values: int
    """The largest number of values of microbatches that one rank held at once."""
    peak_bytes: dict[int, int]
    """Rank -> peak bytes of its values, without optimizer state."""


@checked("program")
def interpret(
    program: Program,
    state: Values | torch.nn.Module,
    microbatches: Sequence[Any],
    *,
    loss: Loss = None,
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> Outcome:
    """Run one iteration of a program, all of its ranks in this process.

    Either `state` is the model, which is not changed, and `microbatches` are inputs in the form of the capture, with
    its `loss`; or both map tensors of the graph to values. ProgramError when the ranks deadlock, or when replicas of a
    weight or gradient differ between ranks.
    """
    if len(microbatches) != program.schedule.num_microbatches:
        raise ProgramError(
            "The program runs another number of microbatches",
            found=f"{len(microbatches)} given, B = {program.schedule.num_microbatches}",
            remedy="Give as many as the schedule has.",
        )
    if isinstance(state, torch.nn.Module):
        graph, state = program.graph, initial_weights(program.graph, state)
        microbatches = [input_values(graph, microbatch_tensors(inputs, loss)) for inputs in microbatches]
    (ranks,) = interpret_steps(program, state, lambda _: microbatches, steps=1, learning_rate=learning_rate, seed=seed)
    return _outcome(program, ranks)


def interpret_steps(
    program: Program,
    state: Values,
    microbatches: Callable[[int], Sequence[Values]],
    *,
    steps: int,
    learning_rate: float = 1e-3,
    seed: int = 0,
) -> Iterator[Sequence[RankExecutor]]:
    """Run iterations of a program one after the other; yields the ranks after each.

    `microbatches(step)` gives those of one iteration by tensor of the graph, `state` the weights and buffers before the
    first. The ranks are the same objects in every iteration. ProgramError when they deadlock.
    """
    network = _Network()
    ranks = [
        RankExecutor(program, rank, LocalTransport(network, rank), state, learning_rate=learning_rate, seed=seed)
        for rank in program.ranks
    ]
    for step in range(steps):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            _take_turns(ranks, step, microbatches(step))
        yield ranks


def _take_turns(ranks: Sequence[RankExecutor], step: int, microbatches: Sequence[Values]) -> None:
    """Run each rank in turn until it waits, until all are done. ProgramError on a deadlock."""

    def iteration(rank: RankExecutor) -> Waiting:
        rank.begin(step)
        for task in rank.program.order(rank.rank):
            yield from rank.run(task, microbatches.__getitem__)

    active = {executor.rank: iteration(executor) for executor in ranks}
    waiting: dict[int, str] = {}
    while active:
        before = len(active), sum(executor.instructions_done for executor in ranks)
        for rank in list(active):
            try:
                waiting[rank] = next(active[rank])
            except StopIteration:
                del active[rank]
                waiting.pop(rank, None)
        if (len(active), sum(executor.instructions_done for executor in ranks)) == before:
            shown = "; ".join(f"rank {rank} waits for {what}" for rank, what in list(waiting.items())[:6])
            raise ProgramError("The program deadlocks", found=shown, remedy="Check it with programs.check.")


class _Network:
    """Messages and collectives in flight between the ranks of one process."""

    def __init__(self) -> None:
        self.mail: dict[tuple[int, int, int, int], torch.Tensor] = {}
        """(sender, receiver, message, microbatch) -> box."""
        self.gathered: dict[tuple[object, ...], dict[int, tuple[torch.Tensor, ...]]] = {}
        """Collective -> rank -> the piece that the rank contributes, and its sizes."""
        self.taken: dict[tuple[object, ...], int] = {}
        """Collective -> how many ranks have its result."""


class LocalTransport:
    """The transport of one rank."""

    def __init__(self, network: _Network, rank: int) -> None:
        self.network, self.rank = network, rank

    def collective(self, task: Task, instruction: Collective, piece: torch.Tensor, *sizes: torch.Tensor) -> Arriving:
        """Hand over a piece, and wait for those of the group."""
        key, network = (task, instruction.ranks, instruction.target), self.network
        network.gathered.setdefault(key, {})[self.rank] = (piece, *sizes)
        while len(network.gathered[key]) < len(instruction.ranks):
            yield f"{instruction.kind.value} {task} of ranks {instruction.ranks}"
        given, place = [network.gathered[key][other] for other in instruction.ranks], instruction.ranks.index(self.rank)
        if sizes:
            result = torch.cat([torch.split(rows, sent.tolist())[place] for rows, sent, _ in given])
        else:
            result = collective(instruction, [piece for (piece,) in given], place)
        network.taken[key] = network.taken.get(key, 0) + 1
        if network.taken[key] == len(instruction.ranks):
            del network.gathered[key], network.taken[key]
        return result

    def send(self, task: Task, instruction: Send, piece: torch.Tensor) -> None:
        """Leave a piece for another rank."""
        self.network.mail[self.rank, instruction.to, instruction.message, task.microbatch] = piece

    def receive(self, task: Task, instruction: Receive, source: int, box: Box) -> Arriving:
        """Wait for a piece of another rank."""
        key = (source, self.rank, instruction.message, task.microbatch)
        while key not in self.network.mail:
            yield f"message {instruction.message} of rank {source} in {task}"
        return self.network.mail.pop(key)


def _outcome(program: Program, ranks: Sequence[RankExecutor]) -> Outcome:
    """Assemble the pieces of all ranks. ProgramError where replicas differ."""
    graph = program.graph
    place = {p.tensor: i for i, p in enumerate(graph.parameters)}
    gradients: dict[int, list[tuple[Box, torch.Tensor]]] = {}
    parameters: dict[int, list[tuple[Box, torch.Tensor]]] = {}
    for rank in ranks:
        for parameter, box, gradient in rank.gradients:
            gradients.setdefault(parameter, []).append((box, gradient))
        for number in rank.stages:
            for lasting in program.stages[number].lasting[rank.rank]:
                if not lasting.zero and lasting.tensor in place:
                    piece = rank.lasting[number, lasting.value]
                    parameters.setdefault(place[lasting.tensor], []).append((lasting.box, piece))

    def whole(pieces: dict[int, list[tuple[Box, torch.Tensor]]], what: str) -> dict[int, torch.Tensor]:
        return {
            p: _whole(boxes, graph.tensors[graph.parameters[p].tensor].shape, f"{what} {graph.parameters[p].name}")
            for p, boxes in sorted(pieces.items())
        }

    losses = {m: loss for rank in ranks for m, loss in rank.losses.items()}
    return Outcome(
        losses=tuple(losses[m] for m in range(program.schedule.num_microbatches)),
        gradients=whole(gradients, "gradient"),
        parameters=whole(parameters, "parameter"),
        most_values=max(rank.most_values for rank in ranks),
        peak_bytes={rank.rank: rank.memory.peak_bytes for rank in ranks},
    )


def collective(instruction: Collective, pieces: list[torch.Tensor], place: int) -> torch.Tensor:
    """The result of a collective on the rank at position `place` of its group."""
    if instruction.kind is StepKind.ALL_GATHER:
        assert instruction.joined is not None
        return torch.cat(pieces, instruction.joined)
    if instruction.kind is StepKind.ALL_TO_ALL:
        assert instruction.joined is not None
        assert instruction.cut is not None
        return torch.cat([torch.chunk(p, len(pieces), instruction.cut)[place] for p in pieces], instruction.joined)
    if instruction.kind is StepKind.PERMUTE:
        assert instruction.cut is not None
        each = len(instruction.order) // len(pieces)
        chunks = [chunk for piece in pieces for chunk in torch.chunk(piece, each, instruction.cut)]
        return torch.cat([chunks[i] for i in instruction.order[place * each : (place + 1) * each]], instruction.cut)
    total = pieces[0].clone()
    for piece in pieces[1:]:
        total = torch.maximum(total, piece) if instruction.reduction is Reduction.MAXIMUM else total + piece
    if instruction.kind is StepKind.ALL_REDUCE:
        return total
    assert instruction.kind is StepKind.REDUCE_SCATTER
    assert instruction.cut is not None
    return torch.chunk(total, len(pieces), instruction.cut)[place].clone(memory_format=torch.contiguous_format)


def _whole(pieces: list[tuple[Box, torch.Tensor]], shape: tuple[int, ...], name: str) -> torch.Tensor:
    whole = torch.full(shape, float("nan"), dtype=pieces[0][1].dtype)
    seen: dict[Box, torch.Tensor] = {}
    for box, piece in pieces:
        if box in seen and not torch.equal(seen[box], piece):
            raise ProgramError(
                "Ranks that hold copies disagree",
                found=f"{name}, box {box}",
                remedy="A rule or a resharding is wrong: please report it with the plan.",
            )
        seen[box] = piece
        whole[tuple(slice(start, stop) for start, stop in box)] = piece
    return whole
