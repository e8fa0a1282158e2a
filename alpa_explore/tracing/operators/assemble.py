"""Drafts and phases -> a TrainingGraph: numbered tensors and operators, and an update operator for each parameter."""

from collections.abc import Mapping, Sequence

import torch

from alpa_explore.errors import CaptureError
from alpa_explore.graph import (
    Argument,
    Operator,
    Parameter,
    Phase,
    Ref,
    Tensor,
    TensorKind,
    TrainingGraph,
    Written,
    counts,
    mapped,
)
from alpa_explore.graph.loops import unrolled_loops_warnings
from alpa_explore.tracing.aten import operator_flops
from alpa_explore.tracing.inputs.example import Example
from alpa_explore.tracing.inputs.fake_model import ModelTensor
from alpa_explore.tracing.joint_graph.trace import JointGraph
from alpa_explore.tracing.operators.drafts import Draft, DraftArgument, Drafts, TracedTensor
from alpa_explore.tracing.operators.phases import Phases
from alpa_explore.tracing.optimizers import Optimizer
from alpa_explore.units import DTYPE_BYTES


def assemble(
    *,
    name: str,
    held: Sequence[ModelTensor],
    example: Example,
    joint: JointGraph,
    drafts: Drafts,
    phases: Phases,
    loss: TracedTensor,
    gradients: Sequence[TracedTensor | None],
    optimizer: Optimizer,
    rematerialization: bool,
    recipe: str | None,
    attributes: dict[int, str],
    training: bool,
    written: Mapping[int, TracedTensor | None],
    state: tuple[str, ...],
) -> TrainingGraph:
    """The graph. `gradients[i]` is the gradient of the i-th traced tensor; those of `held` come first, then the
    example's. `written` are numbers of those that the forward pass writes, with their new values."""
    trained = [i for i, model_tensor in enumerate(held) if model_tensor.trainable and gradients[i] is not None]
    if not trained or not phases.forward:
        raise CaptureError(
            "The loss depends on no parameter",
            found=f"{sum(model_tensor.trainable for model_tensor in held)} trainable parameters, none with a gradient",
            remedy="Look for .detach(), torch.no_grad() or integer tensors between the parameters and the loss.",
        )
    made = {key for key in gradients if key is not None}
    builder = _GraphBuilder(drafts, made, _returned(joint, drafts, phases), joint.own_backward)
    inputs = tuple(
        builder.add_tensor(drafts.key(node), label, TensorKind.INPUT)
        for node, label in zip(joint.inputs[len(held) :], example.names, strict=True)
    )
    read = {key for draft in (*phases.forward, *phases.backward, *phases.update) for key in draft.inputs} | {loss}
    for i, model_tensor in enumerate(held):
        key = drafts.key(joint.inputs[i])
        if i in trained:
            builder.add_tensor(key, model_tensor.name, TensorKind.PARAMETER)
        elif key in read or model_tensor.trainable or written.get(i) is not None:
            kind = TensorKind.FROZEN if model_tensor.is_parameter else TensorKind.BUFFER
            builder.add_tensor(key, model_tensor.name, kind)
    for key, value in drafts.constants.items():
        if key in read:
            builder.add_tensor(key, attributes.get(id(value), key.node), TensorKind.CONSTANT)
    builder.add_operators(phases)
    parameters = tuple(
        builder.add_update(held[i], drafts.key(joint.inputs[i]), gradient, optimizer)
        for i in trained
        if (gradient := gradients[i]) is not None
    )
    floating = next(held[i].fake.dtype for i in trained)
    return TrainingGraph(
        name=name,
        tensors=tuple(builder.tensors),
        operators=tuple(builder.operators),
        inputs=inputs,
        parameters=parameters,
        loss=builder.number[loss],
        samples=example.samples,
        tokens=example.tokens,
        precision=str(floating).removeprefix("torch."),
        optimizer=optimizer.name,
        rematerialization=rematerialization,
        recipe=recipe,
        written=tuple(
            Written(name=held[i].name)
            if value is None
            else Written(
                name=held[i].name, tensor=builder.number[drafts.key(joint.inputs[i])], value=builder.number[value]
            )
            for i, value in written.items()
        ),
        warnings=(*_warnings(held, gradients, training), *state, *unrolled_loops_warnings(builder.operators)),
    )


def _returned(joint: JointGraph, drafts: Drafts, phases: Phases) -> set[TracedTensor]:
    """What the model returns beside its loss; of a view that nothing else reads what it is a view of."""
    live = {draft.name for draft in phases.forward}
    found = set()
    for node in joint.module.graph.nodes:
        key = drafts.values.get(node) if node.name in joint.returned else None
        while isinstance(key, TracedTensor) and key in drafts.producer and key.node not in live:
            producer = drafts.producer[key]
            key = producer.inputs[0] if counts.is_view(producer.kind) and producer.inputs else None
        if isinstance(key, TracedTensor):
            found.add(key)
    return found


def _warnings(held: Sequence[ModelTensor], gradients: Sequence[TracedTensor | None], training: bool) -> tuple[str, ...]:
    unused = [
        model_tensor.name
        for model_tensor, gradient in zip(held, gradients, strict=False)
        if model_tensor.trainable and gradient is None
    ]
    warnings = []
    if unused:
        shown = ", ".join(unused[:5]) + (f" and {len(unused) - 5} more" if len(unused) > 5 else "")
        warnings.append(f"{len(unused)} parameter(s) do not reach the loss and are not trained: {shown}")
    if not training:
        warnings.append("the model is in eval mode: dropout and batch statistics are captured as in inference")
    return tuple(warnings)


_EXPERTS = "alpa_explore.experts.default"
"""Its first output are the tokens, all others are rows for its backward pass."""


class _GraphBuilder:
    """Tensors and operators under construction, with the number of each traced tensor and draft."""

    def __init__(
        self,
        drafts: Drafts,
        gradients: set[TracedTensor],
        returned: set[TracedTensor],
        own_backward: Mapping[int | None, str],
    ) -> None:
        self._drafts, self._own_backward = drafts, own_backward
        self._kinds = dict.fromkeys(returned, TensorKind.RETURNED) | dict.fromkeys(gradients, TensorKind.GRADIENT)
        self.tensors: list[Tensor] = []
        self.operators: list[Operator] = []
        self.number: dict[TracedTensor, int] = {}
        self.index_of: dict[str, int] = {}

    def add_tensor(self, key: TracedTensor, name: str, kind: TensorKind) -> int:
        """Add a tensor without a producer; its number."""
        if key not in self.number:
            self.number[key] = self._append_tensor(name, self._drafts.tensors[key], kind, None)
        return self.number[key]

    def add_operators(self, phases: Phases) -> None:
        """Add the operators of all drafts, phase by phase."""
        for draft in phases.forward:
            self.add_operator(draft, Phase.FORWARD)
        for draft in phases.backward:
            self.add_operator(draft, Phase.BACKWARD, self.index_of[phases.forward_of[draft.name].name])
        for draft in phases.update:
            self.add_operator(draft, Phase.UPDATE)

    def add_operator(self, draft: Draft, phase: Phase, forward: int | None = None) -> None:
        """Add the operator of a draft; a backward operator gets module and source from its forward operator, but the
        source from the model's own backward pass where it has one."""
        index = self.index_of[draft.name] = len(self.operators)
        inputs = tuple(self.number[key] for key in draft.inputs)
        arguments = tuple(self._argument(a) for a in draft.arguments)
        for key in draft.outputs:
            kind = self._kinds.get(key, TensorKind.VALUE)
            if draft.kind == _EXPERTS and key.output:
                kind = TensorKind.ROUTED
            label = draft.name if len(draft.outputs) == 1 else f"{draft.name}.{key.output}"
            self.number[key] = self._append_tensor(label, self._drafts.tensors[key], kind, index)
        outputs = tuple(self.number[key] for key in draft.outputs)
        read, written = [self.tensors[t] for t in inputs], [self.tensors[t] for t in outputs]
        values, fakes = [self._fake(a) for a in draft.arguments], [self._drafts.tensors[k] for k in draft.outputs]
        self.operators.append(
            Operator(
                index=index,
                name=draft.name,
                kind=draft.kind,
                phase=phase,
                inputs=inputs,
                outputs=outputs,
                arguments=arguments,
                keywords=tuple((k, self._argument(v)) for k, v in draft.keywords),
                flops=operator_flops(draft.kind, read, written, arguments, values, fakes),
                bytes_accessed=counts.bytes_accessed(draft.kind, read, written, arguments),
                launches=counts.launches(draft.kind, read, arguments),
                in_place=draft.in_place,
                forward=forward,
                module=draft.module if forward is None else self.operators[forward].module,
                source=(
                    draft.source
                    if forward is None
                    else self._own_backward.get(draft.sequence) or self.operators[forward].source
                ),
            )
        )

    def add_update(
        self, weight_of_model: ModelTensor, key: TracedTensor, gradient: TracedTensor, optimizer: Optimizer
    ) -> Parameter:
        """Add the optimizer step of one parameter."""
        index, tensor, read = len(self.operators), self.number[key], self.number[gradient]
        weight = self.tensors[tensor]
        size = weight.bytes // max(weight.elements, 1)
        updated = self._append_tensor(
            f"{weight_of_model.name}.updated", weight_of_model.fake, TensorKind.UPDATED, index
        )
        self.operators.append(
            Operator(
                index=index,
                name=f"update_{weight_of_model.name}",
                kind=optimizer.kind,
                phase=Phase.UPDATE,
                inputs=(tensor, read),
                outputs=(updated,),
                arguments=(Ref(tensor), Ref(read)),
                flops=optimizer.flops_per_element * weight.elements * counts.real_flops(optimizer.kind, [weight]),
                bytes_accessed=optimizer.step_bytes(weight.elements, size),
                module=weight_of_model.name.rpartition(".")[0],
            )
        )
        return Parameter(
            name=weight_of_model.name,
            tensor=tensor,
            gradient=read,
            update=index,
            state_bytes_per_element=optimizer.state_bytes_per_element(size),
        )

    def _fake(self, argument: DraftArgument) -> object:
        if isinstance(argument, TracedTensor):
            return self._drafts.tensors[argument]
        return [self._fake(a) for a in argument] if isinstance(argument, tuple) else argument

    def _argument(self, argument: DraftArgument) -> Argument:
        made: Argument = mapped(argument, lambda a: Ref(self.number[a]) if isinstance(a, TracedTensor) else a)
        return made

    def _append_tensor(self, name: str, value: torch.Tensor, kind: TensorKind, producer: int | None) -> int:
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in DTYPE_BYTES:
            raise CaptureError(
                "A plan cannot have tensors of this dtype",
                found=f"{dtype}, of the {kind.value} {name}",
                remedy=f"Hold it in another dtype: {', '.join(DTYPE_BYTES)}.",
            )
        self.tensors.append(
            Tensor(
                index=len(self.tensors),
                name=name,
                shape=tuple(int(n) for n in value.shape),
                dtype=dtype,
                kind=kind,
                producer=producer,
            )
        )
        return len(self.tensors) - 1
