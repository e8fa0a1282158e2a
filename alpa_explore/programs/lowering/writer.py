"""Write the instructions of one stage for all of its ranks at once: operators, reshardings, sends and receives.

A value has the same number on every rank of the stage. The writer keeps which tensor a value holds, and in which spec;
which box of the tensor a device holds, and how boxes on one mesh are assembled from those on another, follows.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

from alpa_explore.graph import Operator, TrainingGraph
from alpa_explore.programs.lowering.decision import StageDecision
from alpa_explore.programs.program import Box, Collective, Compute, Count, Instruction, Receive, Send, Slice
from alpa_explore.schedules.task import ONCE_AN_ITERATION, Action
from alpa_explore.sharding.local.local_call import LocalCall, LocalCollective, localize
from alpa_explore.sharding.reshard import Step, StepKind
from alpa_explore.sharding.spec import REPLICATE, Spec, is_legal, local_shape, local_share, shards
from alpa_explore.tracing.aten import draws


def coordinates(mesh_shape: Sequence[int]) -> list[tuple[int, ...]]:
    """The coordinates of every device of a mesh, row-major."""
    return list(itertools.product(*map(range, mesh_shape)))


def box_of(spec: Spec, shape: Sequence[int], mesh_shape: Sequence[int], coordinate: Sequence[int]) -> Box:
    """The box of a tensor that the device at `coordinate` holds; axes that do not shard leave the dims whole."""
    pieces = shards(spec, mesh_shape, len(shape))
    block = [0] * len(shape)
    for axis, placement in enumerate(spec):
        if placement >= 0:
            block[placement] = block[placement] * mesh_shape[axis] + coordinate[axis]
    return tuple((b * n // p, (b + 1) * n // p) for n, p, b in zip(shape, pieces, block, strict=True))


def intersection(a: Box, b: Box) -> Box | None:
    """The intersection of two boxes; None where it is empty."""
    shared = tuple((max(p[0], q[0]), min(p[1], q[1])) for p, q in zip(a, b, strict=True))
    return shared if all(start < stop for start, stop in shared) else None


def inside(box: Box, outer: Box) -> Box:
    """`box` in the coordinates of `outer`."""
    return tuple((s - o, e - o) for (s, e), (o, _) in zip(box, outer, strict=True))


def arriving_spec(spec: Spec, shape: Sequence[int], mesh_shape: Sequence[int]) -> Spec:
    """The spec in which a mesh receives a tensor that it needs in `spec`.

    It also shards along the replicated axes, where a dim is divisible, so that each byte crosses between the meshes
    once; an all-gather inside the mesh makes the replicas (Alpa, §6, local all-gather).
    """
    best = spec
    choices = [[p] if p != REPLICATE else [REPLICATE, *range(len(shape))] for p in spec]
    for candidate in itertools.product(*choices):
        if is_legal(candidate, shape, mesh_shape) and local_share(candidate, mesh_shape) < local_share(
            best, mesh_shape
        ):
            best = candidate
    return best


class StageWriter:
    """The instructions of one stage under construction."""

    def __init__(
        self, decision: StageDecision, *, counted: Collection[int], halves: bool, update_in_parts: bool
    ) -> None:
        self.decision, self.counted = decision, counted
        self.graph: TrainingGraph = decision.stage.layered.graph
        self.mesh = decision.mesh_shape
        self.devices = list(zip(decision.ranks, coordinates(self.mesh), strict=True))
        backward = (Action.BACKWARD_INPUT, Action.BACKWARD_WEIGHT) if halves else (Action.BACKWARD,)
        update = ONCE_AN_ITERATION if update_in_parts else (Action.UPDATE,)
        self.tasks: dict[Action, dict[int, list[Instruction]]] = {
            action: {rank: [] for rank in decision.ranks} for action in (Action.FORWARD, *backward, *update)
        }
        self.action = Action.FORWARD
        self.value_of: dict[int, tuple[int, Spec]] = {}
        """Tensor -> (the value that holds it, its spec)."""
        self._next = len(self.graph.tensors)

    def fresh(self) -> int:
        """A number for a new value."""
        self._next += 1
        return self._next - 1

    def emit(self, rank: int, instruction: Instruction) -> None:
        """Append an instruction to the task that is being written."""
        self.tasks[self.action][rank].append(instruction)

    def group(self, coordinate: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
        """The ranks whose coordinates differ from `coordinate` only on `axes`, row-major."""
        return tuple(
            rank
            for rank, other in self.devices
            if all(a in axes or o == c for a, (o, c) in enumerate(zip(other, coordinate, strict=True)))
        )

    def reshard(self, value: int, tensor: int, source: Spec, target: Spec) -> int:
        """Reshard a value of `tensor` by the steps that the plan has priced; the number of the result."""
        for step in self.decision.resharding_steps(tensor, source, target):
            result = self.fresh()
            for rank, coordinate in self.devices:
                self.emit(rank, self.step(step, coordinate, value, result))
            value = result
        return value

    def step(self, step: Step, coordinate: Sequence[int], value: int, result: int) -> Instruction:
        """The instruction of one device for a step of resharding."""
        before, after = step.source[step.axis], step.target[step.axis]
        if step.kind is StepKind.SLICE:
            pieces = self.mesh[step.axis]
            return Slice(source=value, target=result, dim=after, piece=coordinate[step.axis], pieces=pieces)
        return Collective(
            kind=step.kind,
            ranks=self.group(coordinate, (step.axis,)),
            source=value,
            target=result,
            joined=before if step.kind in (StepKind.ALL_GATHER, StepKind.ALL_TO_ALL) else None,
            cut=after if step.kind in (StepKind.REDUCE_SCATTER, StepKind.ALL_TO_ALL) else None,
        )

    def operator(self, index: int) -> None:
        """Write one operator under its strategy, and register its outputs."""
        operator, strategy = self.graph.operators[index], self.decision.strategies[index]
        read = []
        for tensor, input_spec in zip(operator.inputs, strategy.inputs, strict=True):
            value, spec = self.value_of[tensor]
            read.append(self.reshard(value, tensor, spec, input_spec))
        if index in self.counted:
            read.append(operator.outputs[1])
        numbers: dict[int, int] = dict(enumerate(read))
        for rank, coordinate in self.devices:
            counted = index in self.counted
            if counted:
                self.emit(rank, Count(loss=index, target=operator.outputs[1]))
            call = localize(operator, self.graph.tensors, strategy, self.mesh, coordinate, over_total=counted)
            self._number(operator, call, numbers)
            # Where no rule shards an operator, every device draws the same numbers for the whole tensor.
            seed = (operator.index, *(coordinate[a] for a in call.draws or ())) if draws(operator.kind) else None
            for step in call.steps:
                if isinstance(step, LocalCollective):
                    self.emit(
                        rank,
                        Collective(
                            kind=step.kind,
                            ranks=self.group(coordinate, step.axes),
                            source=numbers[step.source],
                            target=numbers[step.target],
                            joined=step.joined,
                            cut=step.cut,
                            reduction=step.reduction,
                            order=step.order,
                            sizes=tuple(numbers[v] for v in step.sizes),
                        ),
                    )
                else:
                    self.emit(rank, Compute(operator=step.renumbered(numbers), seed=seed))
            for tensor, local in zip(operator.outputs, call.outputs, strict=True):
                if numbers[local] != tensor:  # an input that is returned, or one value for two outputs
                    self.emit(rank, Slice(source=numbers[local], target=tensor, dim=0, piece=0, pieces=1))
        for tensor, spec in zip(operator.outputs, strategy.outputs, strict=True):
            self.value_of[tensor] = (tensor, spec)

    def _number(self, operator: Operator, call: LocalCall, numbers: dict[int, int]) -> None:
        """Number the values of a local call, the same on each rank; outputs get the numbers of their tensors."""
        tensor_of = dict(reversed(list(zip(call.outputs, operator.outputs, strict=True))))
        for step in call.steps:
            for local in (step.target,) if isinstance(step, LocalCollective) else step.outputs:
                if local not in numbers:
                    numbers[local] = tensor_of[local] if local in tensor_of else self.fresh()

    def send(self, value: int, tensor: int, spec: Spec, target: StageDecision, target_spec: Spec, message: int) -> None:
        """Send a value without a pending sum to another stage, which needs it in `target_spec`."""
        for receiver, pieces in self.crossing(tensor, spec, target, target_spec):
            for rank, box in pieces:
                held = box_of(spec, self.graph.tensors[tensor].shape, self.mesh, dict(self.devices)[rank])
                self.emit(rank, Send(source=value, to=receiver, message=message, box=inside(box, held)))

    def crossing(
        self, tensor: int, spec: Spec, target: StageDecision, target_spec: Spec
    ) -> Iterator[tuple[int, list[tuple[int, Box]]]]:
        """(receiver, [(sender, box in coordinates of the tensor)]): which rank sends which box, each byte once."""
        shape = self.graph.tensors[tensor].shape
        arriving = arriving_spec(target_spec, shape, target.mesh_shape)
        holders: dict[Box, list[int]] = {}
        for rank, coordinate in self.devices:
            holders.setdefault(box_of(spec, shape, self.mesh, coordinate), []).append(rank)
        places = zip(target.ranks, coordinates(target.mesh_shape), strict=True)
        for number, (receiver, coordinate) in enumerate(places):
            needed = box_of(arriving, shape, target.mesh_shape, coordinate)
            pieces = []
            for box, ranks in holders.items():
                shared = intersection(needed, box)
                if shared is not None:
                    pieces.append((ranks[number % len(ranks)], shared))  # replicas take turns
            yield receiver, pieces

    def receive(self, sender: StageWriter, tensor: int, spec: Spec, target_spec: Spec, message: int) -> int:
        """Receive a tensor that another stage sends in `spec`, and reshard it to `target_spec`; its value."""
        source = self.graph.tensors[tensor]
        arriving = arriving_spec(target_spec, source.shape, self.mesh)
        received, places = self.fresh(), dict(self.devices)
        for rank, pieces in sender.crossing(tensor, spec, self.decision, target_spec):
            needed = box_of(arriving, source.shape, self.mesh, places[rank])
            self.emit(
                rank,
                Receive(
                    target=received,
                    message=message,
                    shape=local_shape(arriving, source.shape, self.mesh),
                    dtype=source.dtype,
                    pieces=tuple((holder, inside(box, needed)) for holder, box in pieces),
                ),
            )
        return self.reshard(received, tensor, arriving, target_spec)
