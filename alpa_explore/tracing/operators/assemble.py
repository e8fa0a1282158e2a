"""Drafts and phases to a TrainingGraph: tensors and operators get their numbers, parameters their update operators."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from alpa_explore.errors import CaptureError
from alpa_explore.graph import Argument, Operator, Parameter, Phase, Ref, Tensor, TensorKind, TrainingGraph, counts
from alpa_explore.tracing.aten import operator_flops
from alpa_explore.tracing.inputs.example import Example
from alpa_explore.tracing.inputs.fake_model import Held
from alpa_explore.tracing.joint_graph.trace import JointGraph
from alpa_explore.tracing.operators.drafts import Draft, DraftArgument, Drafts, Key
from alpa_explore.tracing.operators.phases import Phases
from alpa_explore.tracing.optimizers import Optimizer


def assemble(
    *,
    name: str,
    held: Sequence[Held],
    example: Example,
    joint: JointGraph,
    drafts: Drafts,
    phases: Phases,
    loss: Key,
    gradients: Sequence[Key | None],
    optimizer: Optimizer,
    rematerialization: bool,
    recipe: str | None,
    attributes: dict[int, str],
    training: bool,
) -> TrainingGraph:
    """Number everything. `gradients[i]` is the gradient of the i-th traced tensor: first `held`, then the example's."""
    trained = [i for i, one in enumerate(held) if one.trainable and gradients[i] is not None]
    if not trained or not phases.forward:
        raise CaptureError(
            "The loss depends on no parameter",
            found=f"{sum(one.trainable for one in held)} trainable parameters, none with a gradient",
            remedy="Look for .detach(), torch.no_grad() or integer tensors between the parameters and the loss.",
        )
    book = _Book(drafts, gradients={key for key in gradients if key is not None})
    inputs = tuple(
        book.hold(drafts.key(node), label, TensorKind.INPUT)
        for node, label in zip(joint.inputs[len(held) :], example.names, strict=True)
    )
    read = {key for made in (*phases.forward, *phases.backward, *phases.update) for key in made.inputs} | {loss}
    for i, one in enumerate(held):
        key = drafts.key(joint.inputs[i])
        if i in trained:
            book.hold(key, one.name, TensorKind.PARAMETER)
        elif key in read or one.trainable:
            book.hold(key, one.name, TensorKind.BUFFER)
    for key, value in drafts.constants.items():
        if key in read:
            book.hold(key, attributes.get(id(value), key.node), TensorKind.CONSTANT)
    for made in phases.forward:
        book.operate(made, Phase.FORWARD)
    for made in phases.backward:
        book.operate(made, Phase.BACKWARD, book.placed[phases.ties[made.name].name])
    for made in phases.update:
        book.operate(made, Phase.UPDATE)
    parameters = tuple(
        book.update(held[i], drafts.key(joint.inputs[i]), gradient, optimizer)
        for i in trained
        if (gradient := gradients[i]) is not None
    )
    floating = next(held[i].fake.dtype for i in trained)
    return TrainingGraph(
        name=name,
        tensors=tuple(book.tensors),
        operators=tuple(book.operators),
        inputs=inputs,
        parameters=parameters,
        loss=book.number[loss],
        samples=example.samples,
        tokens=example.tokens,
        precision=str(floating).removeprefix("torch."),
        optimizer=optimizer.name,
        rematerialization=rematerialization,
        recipe=recipe,
        warnings=_warnings(held, gradients, training),
    )


def _warnings(held: Sequence[Held], gradients: Sequence[Key | None], training: bool) -> tuple[str, ...]:
    unused = [one.name for one, gradient in zip(held, gradients, strict=False) if one.trainable and gradient is None]
    found = []
    if unused:
        shown = ", ".join(unused[:5]) + (f" and {len(unused) - 5} more" if len(unused) > 5 else "")
        found.append(f"{len(unused)} parameter(s) do not reach the loss and are not trained: {shown}")
    if not training:
        found.append("the model is in eval mode: dropout and batch statistics are captured as in inference")
    return tuple(found)


class _Book:
    """Tensors and operators under construction, with the number of each traced tensor and draft."""

    def __init__(self, drafts: Drafts, gradients: set[Key]) -> None:
        self._drafts, self._gradients = drafts, gradients
        self.tensors: list[Tensor] = []
        self.operators: list[Operator] = []
        self.number: dict[Key, int] = {}
        self.placed: dict[str, int] = {}

    def hold(self, key: Key, name: str, kind: TensorKind) -> int:
        """A tensor that no operator makes."""
        if key not in self.number:
            self.number[key] = self._tensor(name, self._drafts.tensors[key], kind, None)
        return self.number[key]

    def operate(self, one: Draft, phase: Phase, forward: int | None = None) -> None:
        """The operator of a draft; a backward one takes module and source from its forward operator."""
        index = self.placed[one.name] = len(self.operators)
        inputs = tuple(self.number[key] for key in one.inputs)
        arguments = tuple(self._argument(a) for a in one.arguments)
        for key in one.outputs:
            kind = TensorKind.GRADIENT if key in self._gradients else TensorKind.VALUE
            label = one.name if len(one.outputs) == 1 else f"{one.name}.{key.output}"
            self.number[key] = self._tensor(label, self._drafts.tensors[key], kind, index)
        outputs = tuple(self.number[key] for key in one.outputs)
        read, made = [self.tensors[t] for t in inputs], [self.tensors[t] for t in outputs]
        values, fakes = [self._fake(a) for a in one.arguments], [self._drafts.tensors[k] for k in one.outputs]
        self.operators.append(
            Operator(
                index=index,
                name=one.name,
                kind=one.kind,
                phase=phase,
                inputs=inputs,
                outputs=outputs,
                arguments=arguments,
                keywords=tuple((k, self._argument(v)) for k, v in one.keywords),
                flops=operator_flops(one.kind, read, made, arguments, values, fakes),
                bytes_accessed=counts.bytes_accessed(one.kind, read, made, arguments),
                forward=forward,
                module=one.module if forward is None else self.operators[forward].module,
                source=one.source if forward is None else self.operators[forward].source,
            )
        )

    def update(self, one: Held, key: Key, gradient: Key, optimizer: Optimizer) -> Parameter:
        """The optimizer's step of one parameter."""
        index, tensor, read = len(self.operators), self.number[key], self.number[gradient]
        weight = self.tensors[tensor]
        size = weight.bytes // max(weight.elements, 1)
        updated = self._tensor(f"{one.name}.updated", one.fake, TensorKind.UPDATED, index)
        self.operators.append(
            Operator(
                index=index,
                name=f"update_{one.name}",
                kind=optimizer.kind,
                phase=Phase.UPDATE,
                inputs=(tensor, read),
                outputs=(updated,),
                arguments=(Ref(tensor), Ref(read)),
                flops=optimizer.flops_per_element * weight.elements,
                bytes_accessed=optimizer.step_bytes(weight.elements, size),
                module=one.name.rpartition(".")[0],
            )
        )
        return Parameter(
            name=one.name,
            tensor=tensor,
            gradient=read,
            update=index,
            state_bytes_per_element=optimizer.state_bytes_per_element(size),
        )

    def _fake(self, argument: DraftArgument) -> object:
        if isinstance(argument, Key):
            return self._drafts.tensors[argument]
        return [self._fake(a) for a in argument] if isinstance(argument, tuple) else argument

    def _argument(self, argument: DraftArgument) -> Argument:
        if isinstance(argument, Key):
            return Ref(self.number[argument])
        if isinstance(argument, tuple):
            return tuple(self._argument(a) for a in argument)
        return argument

    def _tensor(self, name: str, value: torch.Tensor, kind: TensorKind, producer: int | None) -> int:
        self.tensors.append(
            Tensor(
                index=len(self.tensors),
                name=name,
                shape=tuple(int(n) for n in value.shape),
                dtype=str(value.dtype).removeprefix("torch."),
                kind=kind,
                producer=producer,
            )
        )
        return len(self.tensors) - 1
