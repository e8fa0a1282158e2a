"""Lower the decisions for all stages to the instructions of every rank.

Forward task     load or receive the inputs, run the forward operators, send what later stages read
Backward task    receive gradients, recompute activations that rematerialisation does not keep, run the backward
                 operators, send gradients back, add gradients of weights to their sums. Where the schedule has two
                 halves, the first runs what other stages wait for, the second the rest
Update task      reshard the sums to the spec of the optimizer state, add the sums of other stages that share the
                 weight, run the optimizer step, store the weight

Where the schedule runs several copies of the model (DualPipe), each copy's stages are a pipeline of their own, and the
copies of a stage share its weights: each of them adds the sums of all copies, and takes the same step.

Where ranks run several stages and stages share a weight, the update is three tasks, each of which runs for all stages
of a rank before the next one begins: SEND_GRADIENTS sends the sums to the other stages, UPDATE receives them and takes
the step, RECEIVE_WEIGHTS fetches weights from the stages that updated them. In a single task the first stage would wait
for a message that the same rank, or one that waits for it, sends only in the update of its second stage.

A buffer that the forward pass writes is carried from microbatch to microbatch, in their order: the forward task reads
its value, which stays that of this microbatch until its backward task has run, and assigns the new one. Where one stage
writes a buffer and another reads it, or copies of the model share the microbatches, nothing is written
(`Program.frozen`).

The gradient of a weight that several stages share is summed once per iteration, in the update. A mean loss over targets
divides by the mean number of targets of all microbatches (`Count`, `tracing.evaluate`). Lowering decides nothing:
`sharding.local` defines how an operator runs on a shard, and the resharding steps are those that were priced. Values
are freed after their last use (`liveness`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from alpa_explore.arguments import checked
from alpa_explore.graph import Phase, TensorKind, Written
from alpa_explore.plans.plan import Plan
from alpa_explore.programs.lowering.decision import StageDecision, check_table, plan_decisions, program_schedule
from alpa_explore.programs.lowering.writer import StageWriter, box_of
from alpa_explore.programs.program import (
    Accumulate,
    Assign,
    Free,
    Instruction,
    Lasting,
    Load,
    Optimize,
    Program,
    Slice,
    StageProgram,
)
from alpa_explore.schedules.catalog import SCHEDULES, build_schedule
from alpa_explore.schedules.task import ONCE_AN_ITERATION, Action, Schedule
from alpa_explore.sharding.spec import Spec
from alpa_explore.tracing.evaluate import counted_losses


def with_frees(
    tasks: Mapping[Action, Sequence[Instruction]], lasting: set[int], results: set[int]
) -> dict[Action, list[Instruction]]:
    """The tasks of one rank, in order, with Free instructions.

    Values in `results` (the loss) live from the first task, the forward one, until the second.
    """
    per_microbatch = [action for action in tasks if action not in ONCE_AN_ITERATION]
    forward, backward = per_microbatch[:2]
    freed: dict[Action, list[Instruction]] = {}
    for chain in (per_microbatch, [action for action in tasks if action in ONCE_AN_ITERATION]):
        needed: set[int] = set()
        for action in reversed(chain):
            kept = needed | (results - lasting if action is forward else set())
            freed[action] = _freed(tasks[action], lasting | kept)
            if kept - needed:
                freed[backward].insert(0, Free(values=tuple(sorted(kept - needed))))
            written = {value for instruction in tasks[action] for value in instruction.writes}
            needed = (needed - written) | (needed_before(tasks[action]) - lasting)
    return {action: freed[action] for action in tasks}


def needed_before(instructions: Sequence[Instruction]) -> set[int]:
    """The values that instructions read before they write them."""
    written: set[int] = set()
    needed: set[int] = set()
    for instruction in instructions:
        needed |= set(instruction.reads) - written
        written |= set(instruction.writes)
    return needed


def _freed(instructions: Sequence[Instruction], kept: set[int]) -> list[Instruction]:
    last: dict[int, int] = {}
    for place, instruction in enumerate(instructions):
        for value in (*instruction.reads, *instruction.writes):
            last[value] = place
    dying: dict[int, list[int]] = {}
    for value, place in last.items():
        if value not in kept:
            dying.setdefault(place, []).append(value)
    with_frees: list[Instruction] = []
    for place, instruction in enumerate(instructions):
        with_frees.append(instruction)
        if place in dying:
            with_frees.append(Free(values=tuple(dying[place])))
    return with_frees


@checked("plan")
def lower(plan: Plan | Sequence[StageDecision], schedule: Schedule | str | None = None) -> Program:
    """The program that runs a plan, or stages with given decisions, under a schedule.

    The default schedule is the plan's own, or 1F1B for decisions. A plan from a file is rebuilt. Raises as
    `plans.rebuild` and `program_schedule`.
    """
    if isinstance(plan, Plan):
        schedule = program_schedule(plan, schedule)
        decisions: Sequence[StageDecision] = plan_decisions(plan, schedule)
    else:
        decisions = plan
        if not isinstance(schedule, Schedule):
            schedule = build_schedule(schedule or SCHEDULES[0], len(decisions), 1)
        check_table(schedule, len(decisions))
    used = set(schedule.actions.tolist())
    lowering = _Lowering(
        decisions, halves=Action.BACKWARD_INPUT in used, depth=schedule.depth, in_order=_in_order(schedule)
    )
    for stage in range(len(decisions)):
        lowering.forward(stage)
    for stage in reversed(range(len(decisions))):
        lowering.backward(stage)
    lowering.update()
    graph = decisions[0].stage.layered.graph
    return Program(
        graph=graph,
        schedule=schedule,
        stages=tuple(lowering.finished(stage) for stage in range(len(decisions))),
        frozen=tuple(one.name for one in graph.written if one not in lowering.writes),
    )


def _in_order(schedule: Schedule) -> set[int]:
    """The stages that run the forward tasks of all microbatches, in ascending order."""
    forward: dict[int, list[int]] = {}
    for submesh in sorted(set(schedule.submesh_of_stage)):
        for task in schedule.order(submesh):
            if task.action is Action.FORWARD:
                forward.setdefault(task.stage, []).append(task.microbatch)
    return {stage for stage, order in forward.items() if order == list(range(schedule.num_microbatches))}


class _Lowering:
    """Writes the stages one after the other. Each copy of the model has `depth` of them."""

    def __init__(
        self, decisions: Sequence[StageDecision], *, halves: bool, depth: int, in_order: Collection[int]
    ) -> None:
        self.decisions, self.halves, self.depth = decisions, halves, depth
        self.graph = decisions[0].stage.layered.graph
        self.layered = decisions[0].stage.layered
        counted = counted_losses(self.graph)
        self.update_in_parts = self._update_in_parts()
        self.writers = [
            StageWriter(decision, counted=counted, halves=halves, update_in_parts=self.update_in_parts)
            for decision in decisions
        ]
        self.home = {
            (stage // depth, tensor): stage
            for stage, decision in enumerate(decisions)
            for index in decision.stage.operators
            for tensor in self.graph.operators[index].outputs
        }
        """(Copy of the model, tensor) -> the stage that computes it."""
        self.left: dict[tuple[int, int], Spec] = {}
        """(Copy, tensor that other stages read) -> the spec in which it leaves its stage."""
        self.sums: list[dict[int, int]] = [{} for _ in decisions]
        """For each stage: parameter -> the value that holds the sum of its gradient."""
        self.lasting: list[dict[int, list[Lasting]]] = [{rank: [] for rank in d.ranks} for d in decisions]
        self.loss: list[int | None] = [None for _ in decisions]
        self.writes: dict[Written, int] = {
            one: stage
            for one in self.graph.written
            if one.tensor is not None and one.value is not None
            for stage in (self.home[0, one.value],)
            if stage in in_order and all(one.tensor not in d.sources or d is decisions[stage] for d in decisions)
        }
        """Buffer that is written -> the stage that reads it and computes its new value."""

    def forward(self, stage: int) -> None:
        """Write the lasting values, the inputs and the forward operators of a stage."""
        writer, decision = self.writers[stage], self.decisions[stage]
        buffers: dict[int, int] = {}  # one that is written -> the value that lasts
        for position, spec in decision.weights.items():
            tensor = self.graph.parameters[position].tensor
            self._last(stage, tensor, tensor, spec, zero=False)
            writer.value_of[tensor] = (tensor, spec)
        for position, spec in decision.accumulators.items():
            self.sums[stage][position] = writer.fresh()
            gradient = self.graph.parameters[position].gradient
            self._last(stage, self.sums[stage][position], gradient, spec, zero=True)
        for tensor, spec in decision.sources.items():
            source = self.graph.tensors[tensor]
            if source.producer is None and source.kind is not TensorKind.INPUT:
                held = tensor
                if any(one.tensor == tensor for one in self.writes):
                    held = buffers[tensor] = writer.fresh()
                    for rank in decision.ranks:
                        writer.emit(rank, Slice(source=held, target=tensor, dim=0, piece=0, pieces=1))
                self._last(stage, held, tensor, spec, zero=False)
                writer.value_of[tensor] = (tensor, spec)
        self._come_in(stage, Action.FORWARD)
        for index in decision.stage.operators:
            if self.graph.operators[index].phase is Phase.FORWARD:
                writer.operator(index)
                self._leave(stage, index)
        for one in [one for one, written_by in self.writes.items() if written_by == stage]:
            self._write(stage, one, buffers)

    def _write(self, stage: int, one: Written, buffers: Mapping[int, int]) -> None:
        """Assign the new value of a buffer to what the next microbatch reads: to that of `buffers`, or, where no
        operator reads it, to a value of its own."""
        writer, decision = self.writers[stage], self.decisions[stage]
        assert one.tensor is not None, "the graph has it"
        assert one.value is not None, "the graph has it"
        value, spec = writer.value_of[one.value]
        held, target = buffers.get(one.tensor), decision.sources.get(one.tensor)
        if held is None or target is None:
            held, target = writer.fresh(), decision.complete_spec(one.value, spec)
            self._last(stage, held, one.tensor, target, zero=False)
        value = writer.reshard(value, one.value, spec, target)
        for rank in decision.ranks:
            writer.emit(rank, Assign(source=value, target=held))

    def backward(self, stage: int) -> None:
        """Write the received gradients and the backward operators, in two halves where the schedule has them."""
        writer, decision = self.writers[stage], self.decisions[stage]
        operators = [i for i in decision.stage.operators if self.graph.operators[i].phase is Phase.BACKWARD]
        again: dict[int, list[int]] = {}
        for index in decision.stage.operators:
            if index in decision.stage.layered.recomputed:
                again.setdefault(decision.stage.layered.segment_of[index], []).append(index)
        writer.action = Action.BACKWARD_INPUT if self.halves else Action.BACKWARD
        self._come_in(stage, writer.action)
        if not self.halves:
            self._backward_operators(stage, operators, again)
            return
        first = self._awaited(stage, operators)
        self._backward_operators(stage, [i for i in operators if i in first], again)
        writer.action = Action.BACKWARD_WEIGHT
        self._backward_operators(stage, [i for i in operators if i not in first], again)

    def _backward_operators(self, stage: int, operators: Sequence[int], again: dict[int, list[int]]) -> None:
        """Write operators; before the first one that waits for a segment its recomputed operators, after each one the
        additions to the sums of gradients."""
        writer, decision = self.writers[stage], self.decisions[stage]
        readers: dict[int, list[int]] = {}
        for position in decision.accumulators:
            for tensor in self.layered.contributions[position]:
                readers.setdefault(tensor, []).append(position)
        for index in operators:
            for segment in decision.stage.layered.waits.get(index, ()):
                for repeated in again.pop(segment, ()):
                    writer.operator(repeated)
            writer.operator(index)
            self._leave(stage, index)
            for tensor in self.graph.operators[index].outputs:
                for position in readers.get(tensor, ()):
                    value, spec = writer.value_of[tensor]
                    summed = writer.reshard(value, tensor, spec, decision.accumulators[position])
                    for rank in decision.ranks:
                        writer.emit(rank, Accumulate(source=summed, target=self.sums[stage][position]))

    def _awaited(self, stage: int, operators: Sequence[int]) -> set[int]:
        """The backward operators on which a tensor that another stage reads depends."""
        elsewhere = {t for other in self._others(stage) for t in self.decisions[other].sources}
        awaited: set[int] = set()
        for index in reversed(operators):
            for tensor in self.graph.operators[index].outputs:
                if tensor in elsewhere or any(reader in awaited for reader in self.graph.readers.get(tensor, ())):
                    awaited.add(index)
        return awaited

    def update(self) -> None:
        """Write the optimizer steps of all stages; stages that share a weight exchange their sums of gradients."""
        gradients: dict[tuple[int, int], int] = {}
        for stage, decision in enumerate(self.decisions):
            writer = self.writers[stage]
            writer.action = Action.SEND_GRADIENTS if self.update_in_parts else Action.UPDATE
            for position, strategy in decision.updates.items():
                tensor = self.graph.parameters[position].gradient
                value = self.sums[stage][position]
                value = writer.reshard(value, tensor, decision.accumulators[position], strategy.inputs[1])
                gradients[stage, position] = value
                for other in self._owners(position):
                    if other != stage:
                        expected_spec = self.decisions[other].updates[position].inputs[1]
                        writer.send(
                            value,
                            tensor,
                            strategy.inputs[1],
                            self.decisions[other],
                            expected_spec,
                            self._message(tensor, stage, other),
                        )
        for (stage, position), value in gradients.items():
            self.writers[stage].action = Action.UPDATE
            self._step(stage, position, value)
        for stage, decision in enumerate(self.decisions):
            self.writers[stage].action = Action.RECEIVE_WEIGHTS if self.update_in_parts else Action.UPDATE
            for position, spec in decision.weights.items():
                if position not in decision.updates:
                    self._fetch(stage, position, spec)

    def _update_in_parts(self) -> bool:
        """Whether a rank runs several stages, and stages share a weight.

        Ranks could wait for each other: the update of a rank's first stage for what another rank sends in the update of
        its second stage, and that rank, in the update of its first, for the second stage of this one.
        """
        runs = [rank for decision in self.decisions for rank in decision.ranks]
        weights = [position for decision in self.decisions for position in decision.weights]
        return len(set(runs)) < len(runs) and len(set(weights)) < len(weights)

    def _step(self, stage: int, position: int, gradient: int) -> None:
        writer, decision = self.writers[stage], self.decisions[stage]
        parameter, strategy = self.graph.parameters[position], decision.updates[position]
        parts = [
            gradient
            if owner == stage
            else writer.receive(
                self.writers[owner],
                parameter.gradient,
                self.decisions[owner].updates[position].inputs[1],
                strategy.inputs[1],
                self._message(parameter.gradient, owner, stage),
            )
            for owner in self._owners(position)
        ]
        total, *more = parts  # the same order on all stages keeps the replicas of a weight equal to the last bit
        for part in more:
            for rank in decision.ranks:
                writer.emit(rank, Accumulate(source=part, target=total))
        weight = writer.reshard(parameter.tensor, parameter.tensor, decision.weights[position], strategy.inputs[0])
        update = self.graph.operators[parameter.update]
        (updated,) = update.outputs
        shape = self.graph.tensors[parameter.tensor].shape
        for rank, coordinate in writer.devices:
            writer.emit(
                rank,
                Optimize(
                    kind=update.kind,
                    parameter=position,
                    weight=weight,
                    gradient=total,
                    target=updated,
                    box=box_of(strategy.inputs[1], shape, writer.mesh, coordinate),
                ),
            )
        writer.value_of[updated] = (updated, strategy.outputs[0])
        for reader, target in enumerate(self.decisions):  # stages that read the weight and compute no gradient of it
            if position in target.weights and position not in target.updates and self._owners(position)[0] == stage:
                name = self._message(updated, stage, reader)
                writer.send(updated, updated, strategy.outputs[0], target, target.weights[position], name)
        stored = writer.reshard(updated, updated, strategy.outputs[0], decision.weights[position])
        for rank in decision.ranks:
            writer.emit(rank, Assign(source=stored, target=parameter.tensor))

    def _fetch(self, stage: int, position: int, spec: Spec) -> None:
        owners = self._owners(position)
        if not owners:
            return
        (updated,) = self.graph.operators[self.graph.parameters[position].update].outputs
        sent = self.decisions[owners[0]].updates[position].outputs[0]
        name = self._message(updated, owners[0], stage)
        value = self.writers[stage].receive(self.writers[owners[0]], updated, sent, spec, name)
        for rank in self.decisions[stage].ranks:
            self.writers[stage].emit(rank, Assign(source=value, target=self.graph.parameters[position].tensor))

    def _owners(self, position: int) -> list[int]:
        """The stages that update a parameter: those that compute a gradient of it."""
        return [stage for stage, decision in enumerate(self.decisions) if position in decision.updates]

    def _come_in(self, stage: int, action: Action) -> None:
        """Load or receive the sources that no earlier task of the stage has read."""
        writer, decision = self.writers[stage], self.decisions[stage]
        for tensor, spec in decision.sources.items():
            source = self.graph.tensors[tensor]
            if tensor in writer.value_of or (action is Action.FORWARD and not self._read_forward(stage, tensor)):
                continue
            if source.producer is None:
                for rank, coordinate in writer.devices:
                    box = box_of(spec, source.shape, writer.mesh, coordinate)
                    writer.emit(rank, Load(tensor=tensor, box=box, target=tensor))
                writer.value_of[tensor] = (tensor, spec)
            else:
                copy = stage // self.depth
                home = self.home[copy, tensor]
                name = self._message(tensor, home, stage)
                value = writer.receive(self.writers[home], tensor, self.left[copy, tensor], spec, name)
                writer.value_of[tensor] = (value, spec)

    def _read_forward(self, stage: int, tensor: int) -> bool:
        """Whether a forward operator of the stage reads a source."""
        graph, operators = self.graph, set(self.decisions[stage].stage.operators)
        reading = [r for r in graph.readers[tensor] if r in operators]
        return any(graph.operators[r].phase is Phase.FORWARD for r in reading)

    def _leave(self, stage: int, index: int) -> None:
        """Send the outputs of an operator that other stages read, without a pending sum; remember the loss."""
        writer, decision = self.writers[stage], self.decisions[stage]
        for tensor in self.graph.operators[index].outputs:
            readers = [s for s in self._others(stage) if tensor in self.decisions[s].sources]
            if tensor != self.graph.loss and not readers:
                continue
            value, spec = writer.value_of[tensor]
            complete = self.left[stage // self.depth, tensor] = decision.complete_spec(tensor, spec)
            value = writer.reshard(value, tensor, spec, complete)
            if tensor == self.graph.loss:
                self.loss[stage] = value
            for reader in readers:
                other = self.decisions[reader]
                name = self._message(tensor, stage, reader)
                writer.send(value, tensor, complete, other, other.sources[tensor], name)

    def _others(self, stage: int) -> list[int]:
        """The other stages of the same copy of the model."""
        first = stage // self.depth * self.depth
        return [other for other in range(first, first + self.depth) if other != stage]

    def _message(self, tensor: int, sender: int, receiver: int) -> int:
        """The number of a message; it contains both stages, since a rank may run several."""
        return (tensor * len(self.decisions) + sender) * len(self.decisions) + receiver

    def _last(self, stage: int, value: int, tensor: int, spec: Spec, *, zero: bool) -> None:
        shape = self.graph.tensors[tensor].shape
        for rank, coordinate in self.writers[stage].devices:
            box = box_of(spec, shape, self.writers[stage].mesh, coordinate)
            self.lasting[stage][rank].append(Lasting(value=value, tensor=tensor, box=box, zero=zero))

    def finished(self, stage: int) -> StageProgram:
        """The finished instructions of a stage, with Free instructions."""
        writer, loss = self.writers[stage], self.loss[stage]
        tasks: dict[Action, dict[int, tuple[Instruction, ...]]] = {action: {} for action in writer.tasks}
        for rank in self.decisions[stage].ranks:
            lasting = {held.value for held in self.lasting[stage][rank]}
            for action, instructions in with_frees(
                {action: of_ranks[rank] for action, of_ranks in writer.tasks.items()},
                lasting,
                set() if loss is None else {loss},
            ).items():
                tasks[action][rank] = tuple(instructions)
        return StageProgram(
            ranks=self.decisions[stage].ranks,
            tasks=tasks,
            lasting={rank: tuple(of_ranks) for rank, of_ranks in self.lasting[stage].items()},
            loss=loss,
        )
