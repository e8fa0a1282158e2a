"""Execute the instructions of one rank.

The interpreter, which runs all ranks in one process, and the runtime, which runs a process per rank, share this
definition; they differ only in the transport that connects the ranks.

An executing rank is a generator that yields while it has to wait; with a transport that blocks it never yields.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Protocol, TypeAlias

import torch

from alpa_explore.programs.execution.optimizer_step import PieceOptimizer
from alpa_explore.programs.program import (
    Accumulate,
    Assign,
    Box,
    Collective,
    Compute,
    Count,
    Free,
    Instruction,
    Load,
    Optimize,
    Program,
    Receive,
    Send,
    Slice,
)
from alpa_explore.schedules.task import Action, Task
from alpa_explore.tracing.aten import operator_call
from alpa_explore.tracing.evaluate import counted_losses, mean_count

Values: TypeAlias = Mapping[int, torch.Tensor]
"""Tensor of the graph -> its whole value."""
Boxes: TypeAlias = Callable[[int, Box], torch.Tensor]
"""(tensor of the graph, box) -> the value of the box."""
Waiting: TypeAlias = Generator[str, None, None]
"""Yields a description of what the rank waits for."""
Arriving: TypeAlias = Generator[str, None, torch.Tensor]
"""Yields the same, and returns the tensor that has arrived."""


class Transport(Protocol):
    """Connects one rank to the others. Messages between two ranks arrive in the order in which they were sent."""

    def collective(self, task: Task, instruction: Collective, piece: torch.Tensor, *sizes: torch.Tensor) -> Arriving:
        """The result on this rank of a collective to which it contributes `piece`; `sizes` are those of an all-to-all
        of rows."""

    def send(self, task: Task, instruction: Send, piece: torch.Tensor) -> None:
        """Send `piece` without waiting. Nobody writes to `piece` afterwards."""

    def receive(self, task: Task, instruction: Receive, source: int, box: Box) -> Arriving:
        """The box that rank `source` sends for this instruction, once it has arrived."""


class RankExecutor:
    """One rank and its memory: weights, sums of gradients, values of microbatches, optimizer state."""

    def __init__(
        self,
        program: Program,
        rank: int,
        transport: Transport,
        state: Values | Boxes,
        *,
        learning_rate: float,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        """`state` gives the weights and buffers at the start, undivided or box by box."""
        self.program, self.rank, self.transport, self.device = program, rank, transport, torch.device(device)
        self.learning_rate, self.seed = learning_rate, seed
        self.stages = [number for number, stage in enumerate(program.stages) if rank in stage.ranks]
        self.lasting: dict[tuple[int, int], torch.Tensor] = {}
        """(stage, value)."""
        self.held: dict[tuple[int, int], dict[int, torch.Tensor]] = {}
        """(stage, microbatch) -> value -> tensor."""
        self.optimizers: dict[tuple[int, int], PieceOptimizer] = {}
        """(stage, parameter)."""
        self.losses: dict[int, float] = {}
        """Microbatch -> loss in this iteration; empty on ranks that do not compute the loss."""
        self.counts: dict[int, torch.Tensor] = {}
        """Index of a mean loss -> its divisor in this iteration."""
        self.gradients: list[tuple[int, Box, torch.Tensor]] = []
        """(parameter, box, mean over microbatches) of this iteration."""
        self.now: tuple[Task, Instruction] | None = None
        """The task and the instruction that are being executed."""
        self.instructions_done = 0
        self.most_values = 0
        """The largest number of values of microbatches held at once."""
        self.memory = Memory()
        self._step = 0
        self._calls: dict[int, Callable[[Values], tuple[torch.Tensor, ...]]] = {}
        """Identity of an operator of the program -> its call."""
        for number in self.stages:
            for lasting in program.stages[number].lasting[rank]:
                try:
                    if lasting.zero:
                        value = self._zero(lasting.tensor, lasting.box)
                    else:
                        tensor, box = lasting.tensor, lasting.box
                        value = (state(tensor, box) if callable(state) else cut(state[tensor], box)).to(self.device)
                except RuntimeError as error:  # torch raises this when memory runs out
                    taken = program.graph.tensors[lasting.tensor]
                    extents = [stop - start for start, stop in lasting.box]
                    what = f"the sum of gradients {taken.name}" if lasting.zero else taken.name
                    error.add_note(f"its start, taking {what} of {extents} {taken.dtype}")
                    raise
                self.memory.add(value)
                self.lasting[number, lasting.value] = value

    def begin(self, step: int) -> None:
        """Start an iteration: set the sums of gradients to zero."""
        self._step = step
        self.losses.clear()
        self.counts.clear()
        self.gradients.clear()
        for number in self.stages:
            for lasting in self.program.stages[number].lasting[self.rank]:
                if lasting.zero and step:
                    self._replace(number, lasting.value, self._zero(lasting.tensor, lasting.box))

    def run(self, task: Task, load: Callable[[int], Values]) -> Waiting:
        """Execute one task; `load(microbatch)` returns the inputs of a microbatch of this iteration, undivided."""
        stage = self.program.stages[task.stage]
        for instruction in stage.tasks[task.action][self.rank]:
            self.now = task, instruction
            waiting = self.execute(task, instruction, load)
            if waiting is not None:
                yield from waiting
            self.instructions_done += 1
        if task.action is Action.FORWARD and stage.loss is not None:
            self.losses[task.microbatch] = float(self.held[task.stage, task.microbatch][stage.loss])
        if task.action is list(stage.tasks)[-1]:
            left = [values for (number, _), values in self.held.items() if number == task.stage and values]
            assert not left, "a program frees all values of its microbatches"
            self.held = {key: values for key, values in self.held.items() if key[0] != task.stage}

    def execute(self, task: Task, instruction: Instruction, load: Callable[[int], Values]) -> Waiting | None:
        """Execute one instruction of a task. What other ranks take part in is only begun: it is executed by going
        through what is returned."""
        # Models of small operators spend as long here as in their kernels: the most frequent instructions come first,
        # and only those that may wait make a generator.
        values = self.held.get((task.stage, task.microbatch))
        if values is None:
            values = self.held[task.stage, task.microbatch] = {}
        match instruction:
            case Compute():
                if instruction.seed is not None:
                    torch.manual_seed(hash((self.seed, self._step, task.microbatch, *instruction.seed)))
                operator = instruction.operator
                call = self._calls.get(id(operator))
                if call is None:
                    call = self._calls[id(operator)] = operator_call(operator, self.device)
                made = call({t: self._read(task.stage, values, t) for t in operator.inputs})
                for target, tensor in zip(operator.outputs, made, strict=True):
                    self._write(task.stage, values, target, tensor)
            case Free():
                self.most_values = max(self.most_values, sum(map(len, self.held.values())))
                for value in instruction.values:
                    self.memory.drop(values.pop(value))
            case Collective():
                return self._exchange(task, instruction, values)
            case Receive():
                return self._receive(task, instruction, values)
            case Send():
                piece = self._read(task.stage, values, instruction.source)
                self.transport.send(task, instruction, cut(piece, instruction.box))
            case _:
                self._write(task.stage, values, instruction.target, self._made(task, instruction, values, load))
        return None

    def _made(
        self,
        task: Task,
        instruction: Load | Count | Slice | Accumulate | Optimize | Assign,
        values: dict[int, torch.Tensor],
        load: Callable[[int], Values],
    ) -> torch.Tensor:
        """What an instruction makes that is no operator of the graph."""
        match instruction:
            case Load():
                return cut(load(task.microbatch)[instruction.tensor], instruction.box).to(self.device)
            case Count():
                return self._count(instruction.loss, load).clone()
            case Slice():
                source = self._read(task.stage, values, instruction.source)
                if instruction.pieces == 1:
                    return source
                return torch.chunk(source, instruction.pieces, instruction.dim)[instruction.piece].contiguous()
            case Accumulate():
                summed = self._read(task.stage, values, instruction.target)
                added = self._read(task.stage, values, instruction.source)
                # In place, as autograd does, where it is a sum over microbatches, of which nothing else is a view.
                return summed.add_(added) if (task.stage, instruction.target) in self.lasting else summed + added
            case Optimize():
                weight = self._read(task.stage, values, instruction.weight)
                gradient_sum = self._read(task.stage, values, instruction.gradient)
                return self._optimized(task.stage, instruction, weight, gradient_sum)
            case Assign():
                return self._read(task.stage, values, instruction.source)

    def _exchange(self, task: Task, instruction: Collective, values: dict[int, torch.Tensor]) -> Waiting:
        piece, *sizes = (self._read(task.stage, values, v) for v in (instruction.source, *instruction.sizes))
        result = yield from self.transport.collective(task, instruction, piece, *sizes)
        self._write(task.stage, values, instruction.target, result)

    def _receive(self, task: Task, instruction: Receive, values: dict[int, torch.Tensor]) -> Waiting:
        whole = torch.empty(instruction.shape, dtype=getattr(torch, instruction.dtype), device=self.device)
        for source_rank, box in instruction.pieces:
            piece = yield from self.transport.receive(task, instruction, source_rank, box)
            whole[tuple(slice(start, stop) for start, stop in box)] = piece
        self._write(task.stage, values, instruction.target, whole)

    def _read(self, stage: int, values: dict[int, torch.Tensor], value: int) -> torch.Tensor:
        found = values.get(value)
        return self.lasting[stage, value] if found is None else found

    def _write(self, stage: int, values: dict[int, torch.Tensor], value: int, tensor: torch.Tensor) -> None:
        if (stage, value) in self.lasting:
            self._replace(stage, value, tensor)
            return
        self.memory.add(tensor)
        if value in values:
            self.memory.drop(values[value])
        values[value] = tensor

    def _count(self, loss: int, load: Callable[[int], Values]) -> torch.Tensor:
        """The divisor of a mean loss in this iteration, computed once."""
        if loss not in self.counts:
            counted = counted_losses(self.program.graph)[loss]
            mean = mean_count(self.program.graph, counted, load, self.program.schedule.num_microbatches)
            self.counts[loss] = mean.to(self.device)
        return self.counts[loss]

    def _optimized(
        self, stage: int, instruction: Optimize, weight: torch.Tensor, gradient_sum: torch.Tensor
    ) -> torch.Tensor:
        """The weight after an optimizer step by the mean gradient."""
        gradient = gradient_sum / self.program.schedule.num_microbatches
        self.gradients.append((instruction.parameter, instruction.box, gradient))
        key = (stage, instruction.parameter)
        if key not in self.optimizers:
            self.optimizers[key] = PieceOptimizer(instruction.kind, weight, self.learning_rate)
        return self.optimizers[key].step(gradient)

    def _zero(self, tensor: int, box: Box) -> torch.Tensor:
        dtype = getattr(torch, self.program.graph.tensors[tensor].dtype)
        return torch.zeros([stop - start for start, stop in box], dtype=dtype, device=self.device)

    def _replace(self, stage: int, value: int, tensor: torch.Tensor) -> None:
        self.memory.add(tensor)
        self.memory.drop(self.lasting[stage, value])
        self.lasting[stage, value] = tensor


class Memory:
    """Bytes of the storages of all values; views of one storage count once."""

    def __init__(self) -> None:
        self.now_bytes = self.peak_bytes = 0
        self._count: dict[int, int] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Count a new value."""
        storage = tensor.untyped_storage()
        count = self._count.get(storage._cdata, 0)
        self._count[storage._cdata] = count + 1
        if not count:
            self.now_bytes += storage.nbytes()
            self.peak_bytes = max(self.peak_bytes, self.now_bytes)

    def drop(self, tensor: torch.Tensor) -> None:
        """Stop counting a value."""
        storage = tensor.untyped_storage()
        self._count[storage._cdata] -= 1
        if not self._count[storage._cdata]:
            del self._count[storage._cdata]
            self.now_bytes -= storage.nbytes()


def cut(whole: torch.Tensor, box: Box) -> torch.Tensor:
    """A copy of a box of a tensor: contiguous, as in a checkpoint, so that a run that goes on from one rounds alike."""
    return whole[tuple(slice(start, stop) for start, stop in box)].clone(memory_format=torch.contiguous_format)
