"""Capture: a PyTorch model and one microbatch of example inputs -> the TrainingGraph of one training step.

All tensors are fake, so a model of any size takes no memory. The steps: fake parameters (`inputs.fake_model`); model
and loss traced as one function (`inputs`, `joint_graph`); nodes to drafts of operators, phases, numbered tensors and
operators with the parameter updates after them (`operators`).

Attention is one operator, forward and backward (`tracing.attention`), where the model calls torch's function for it; a
model that spells it out is captured as written, and its plans say so.

A model is captured in its current mode: in training mode with dropout, in eval mode without. The new values of buffers
that the forward pass writes (running statistics of batch norm) are part of the graph (`graph.written`).
"""

import os
import random
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.utils.hooks import RemovableHandle

from alpa_explore.cluster.precisions import LOW_PRECISIONS, recipe_of
from alpa_explore.errors import CancelledError, CaptureError, OptionError, nearest_names
from alpa_explore.graph import PRECISIONS, TrainingGraph, full_precision, verify
from alpa_explore.graph.written import listed
from alpa_explore.numerics.memory import no_collection
from alpa_explore.tracing.cancelling import stop_if_cancelled
from alpa_explore.tracing.inputs.example import flatten_example
from alpa_explore.tracing.inputs.fake_model import (
    ModelTensor,
    attribute_tensors,
    attributes_restored,
    fake_like,
    installed,
    model_tensors,
    replacements,
)
from alpa_explore.tracing.inputs.losses import Loss, beside_loss, scalar_loss
from alpa_explore.tracing.inputs.onnx_file import load_onnx
from alpa_explore.tracing.joint_graph.checkpoints import Checkpoints
from alpa_explore.tracing.joint_graph.diagnose import diagnose
from alpa_explore.tracing.joint_graph.locate import AnnotateCalls, TracePosition, follow_modules
from alpa_explore.tracing.joint_graph.step_calls import StepCalls, changes, step_calls
from alpa_explore.tracing.joint_graph.trace import JointGraph, trace
from alpa_explore.tracing.operators.assemble import assemble
from alpa_explore.tracing.operators.drafting import draft
from alpa_explore.tracing.operators.drafts import Drafts, TracedTensor
from alpa_explore.tracing.operators.phases import Phases, assign_phases, new_values
from alpa_explore.tracing.operators.sharing import share
from alpa_explore.tracing.optimizers import Optimizer, find_optimizer
from alpa_explore.tracing.resizing.fewer_blocks import FEW, MORE, repeated_blocks
from alpa_explore.tracing.resizing.unroll import continued_calls, unroll

T = TypeVar("T")

_ONE_AT_A_TIME = threading.RLock()
"""Tracing changes torch's state of the whole process: two captures at once, as of an explorer in the background and of
the notebook's next cell, fail with an assertion inside torch."""


def capture(
    model: nn.Module | str | os.PathLike[str],
    example_inputs: tuple[Any, ...] | Mapping[str, Any] | Tensor,
    loss: Loss = None,
    optimizer: str = "adam",
    precision: str | None = None,
    rematerialization: bool = False,
    name: str | None = None,
    recipe: str | None = None,
) -> TrainingGraph:
    """The training step of `model` on one microbatch, as a graph.

    `example_inputs` are one microbatch: a tuple of positional inputs or a dict of keyword inputs (real, meta or fake
    tensors; values are not read). Without `loss` the model must return its loss; with one, the last inputs are its
    targets (`inputs.losses`). `optimizer` is 'adam', 'adamw', 'sgd' or 'sgd_momentum'. `precision` is the dtype that
    floating weights, buffers and inputs are converted to; None keeps theirs. `recipe` describes how to rebuild the
    model and is only stored. The model is not changed; it may also be the path of an ONNX file.

    Raises CaptureError, with operator, module and line, if the model cannot be traced.
    """
    module, module_name = _module(model)
    request = _Request(
        module=module,
        example_inputs=example_inputs,
        loss=_loss(loss),
        optimizer=find_optimizer(optimizer),
        precision=_dtype(precision),
        name=name or module_name,
        rematerialization=rematerialization,
        recipe=recipe,
    )
    with _ONE_AT_A_TIME:
        return from_fewer_blocks(request) or _captured(request)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The checked arguments of `capture`."""

    module: nn.Module
    example_inputs: tuple[Any, ...] | Mapping[str, Any] | Tensor
    loss: Loss
    optimizer: Optimizer
    precision: torch.dtype | None
    name: str
    rematerialization: bool
    recipe: str | None


def from_fewer_blocks(request: _Request) -> TrainingGraph | None:
    """The graph from captures with fewer of the equal blocks; None where it has few, or the captures do not determine
    it."""
    blocks = repeated_blocks(request.module)
    if blocks is None:
        return None
    try:
        with blocks.shortened(FEW):
            few_calls = _FakeStep(request).calls()
        with blocks.shortened(MORE):
            more_calls = _FakeStep(request).calls()
        whole = _FakeStep(request)
        whole_calls = whole.calls()
        for part in fields(StepCalls):
            of_few, of_more, of_whole = (getattr(calls, part.name) for calls in (few_calls, more_calls, whole_calls))
            if continued_calls(of_few, of_more, blocks.periods, FEW) != of_whole:
                return None
        with blocks.shortened(FEW):
            few = _captured(request)
        with blocks.shortened(MORE):
            more = _captured(request)
    except CaptureError:  # of a shorter model, which may be no model; the capture of the whole one has its own
        return None
    graph = unroll(few, more, blocks.periods, FEW)
    # The calls do not show names: the weights must be those of the whole model.
    trainable = {tensor.name: tuple(tensor.fake.shape) for tensor in whole.held if tensor.trainable}
    weights = () if graph is None else [graph.tensors[parameter.tensor] for parameter in graph.parameters]
    if graph is None or {weight.name: weight.shape for weight in weights} != trainable:
        return None
    return whole.with_checkpoints(graph)


def _captured(request: _Request) -> TrainingGraph:
    step = _FakeStep(request)
    with torch.enable_grad(), no_collection():
        joint = step.trace()
        stop_if_cancelled()
        drafts = draft(joint)
        loss_key = drafts.key(joint.loss)
        # A weight without elements has nothing to train.
        gradients = [
            None if node is None or not tensor.fake.numel() else drafts.key(node)
            for tensor, node in zip(step.held, joint.gradients, strict=False)
        ]
        written = new_values(joint, drafts, step.written(joint))
        new = [value for value in written.values() if value is not None]
        results = [loss_key, *(g for g in gradients if g is not None)]
        phases = assign_phases(joint, drafts, loss_key, results[1:], new)
        phases = share(drafts, phases, frozenset((*results, *new)))
        _check_read(joint, drafts, phases, step.held, gradients)
        graph = assemble(
            name=request.name,
            held=step.held,
            example=step.example,
            joint=joint,
            drafts=drafts,
            phases=phases,
            loss=loss_key,
            gradients=gradients,
            optimizer=request.optimizer,
            rematerialization=request.rematerialization,
            recipe=request.recipe,
            attributes=attribute_tensors(request.module),
            training=request.module.training,
            written=written,
            state=step.warnings(),
        )
    return verify(step.with_checkpoints(graph))


class _FakeStep:
    """The forward pass and the loss of a model on fake tensors."""

    def __init__(self, request: _Request) -> None:
        self._model, self._loss = request.module, request.loss
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.held = model_tensors(request.module, self._mode, request.precision)
        if not any(tensor.trainable for tensor in self.held):
            raise CaptureError(
                "The model has no trainable parameter",
                found=f"{len(self.held)} parameters and buffers, none of which requires a gradient",
                remedy="Call model.requires_grad_(True), or capture a model that has parameters.",
            )
        self.example = flatten_example(request.module, request.example_inputs, request.loss)
        inputs = [fake_like(tensor, self._mode, request.precision) for tensor in self.example.tensors]
        self._tensors = [*(tensor.fake for tensor in self.held), *inputs]
        self._place = TracePosition()
        self._checkpoints = Checkpoints(
            model=request.module,
            place=self._place,
            inputs_need_gradients=any(tensor.requires_grad for tensor in self.example.tensors),
        )
        self._hooks: list[RemovableHandle] = []
        self._kept: frozenset[str] = frozenset()
        """Attributes of modules that the forward pass changes."""
        self._restores = True
        self._drawn: set[str] = set()
        """Generators outside torch from which the forward pass draws."""
        self._replaced: set[str] = set()
        """Tensors of the model in whose place the forward pass puts others: `self.mean = 0.9 * self.mean + …`."""

    def trace(self) -> JointGraph:
        """The joint graph of forward and backward. CaptureError."""
        return self._diagnosed(lambda: trace(self._run, self._tensors))

    def with_checkpoints(self, graph: TrainingGraph) -> TrainingGraph:
        """`graph` with what the last run of the model checkpointed."""
        regions = tuple(dict.fromkeys(self._checkpoints.regions))
        inside = {path for region in regions for path in region}
        twice = [w.name for w in graph.written if w.value is not None and _within(w.name, inside)]
        remarks = [r for r in self._checkpoints.remarks if r not in graph.warnings]
        if twice:
            remarks.append(
                f"the model checkpoints what writes {listed(twice)}: torch writes it again when it computes that in the"
                " backward pass, a run only once"
            )
        return replace(graph, checkpoints=regions, warnings=(*graph.warnings, *remarks))

    def written(self, joint: JointGraph) -> list[int]:
        """Numbers of the tensors of the model that the forward pass of a trace wrote. CaptureError for a trained
        weight."""
        written = [
            number
            for number, tensor in enumerate(self.held)
            if number in joint.written or tensor.name in self._replaced
        ]
        if trained := [self.held[number].name for number in written if self.held[number].trainable]:
            raise CaptureError(
                "The forward pass writes a weight that is trained, which a plan cannot do",
                found=", ".join(trained[:5]),
                remedy="Change weights after the step of the optimizer, outside of the forward pass, or compute what it"
                " needs from them in new tensors.",
            )
        return written

    def warnings(self) -> tuple[str, ...]:
        """That the next call of the model differs: from what the traced one has kept in attributes of modules, or by
        random numbers of Python or NumPy; and that it branches on whether values are finite."""
        drawn = tuple(
            f"the forward pass draws random numbers of {name}: every step of a run computes with those of the capture;"
            " draw them by torch, or pass them as inputs"
            for name in sorted(self._drawn)
        )
        finite = (
            [
                f"the forward pass branches on whether values are finite ({_first(self._place.finite)}): they are taken"
                " as finite"
            ]
            if self._place.finite
            else []
        )
        return (*drawn, *finite, *self._state_warnings())

    def _state_warnings(self) -> tuple[str, ...]:
        if not self._kept:
            return ()
        with attributes_restored(self._model):
            self._restores = False
            try:
                differs = changes(self._run, self._tensors, self._mode)
            finally:
                self._restores = True
        if not differs:
            return ()
        return (
            f"the forward pass keeps state in attributes of modules ({_first(self._kept)}), and its next call differs"
            " from the first: a run computes every step as the first",
        )

    def calls(self) -> StepCalls:
        """The calls of the forward and the backward pass. CaptureError."""
        with torch.enable_grad(), no_collection():
            return self._diagnosed(lambda: step_calls(self._run, self._tensors, self._mode))

    def _run(self, tensors: Sequence[Tensor]) -> tuple[Tensor, dict[int, Tensor], list[Tensor]]:
        place, held = self._place, self.held
        place.modules.clear()
        call = self.example.rebuild(tensors[len(held) :])
        # The backward pass follows this function, so hooks stay until the next run of the same tensors.
        while self._hooks:
            self._hooks.pop().remove()
        for original, tensor in zip(held, tensors, strict=False):
            for hook in original.hooks:
                self._hooks.append(tensor.register_hook(hook))  # type: ignore[no-untyped-call]  # torch has no annotation
        with (
            attributes_restored(self._model) if self._restores else nullcontext() as kept,
            installed(held, tensors[: len(held)]),
            follow_modules(self._model, place),
            self._checkpoints.followed(),
            AnnotateCalls(place),
            _drawn_outside_torch() as drawn,
        ):
            output = self._model(*call.arguments, **call.keywords)
            self._kept |= kept() if kept else frozenset()
            self._drawn |= drawn()
            replaced = {n: r for n, t in enumerate(held) if (r := replacements(t, tensors[n]))}
            self._replaced |= {held[number].name for number in replaced}
            place.modules.clear()
            result = scalar_loss(output, call.targets, self._loss)
        place.function = "of the backward pass"
        # Two slots of one buffer that hold different tensors now are no longer one.
        new = {n: r[0] for n, r in replaced.items() if r[0] is not None and len(r) == len(held[n].slots) == 1}
        return result, new, [] if self._loss is not None else beside_loss(output)

    def _diagnosed(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (CaptureError, CancelledError):
            raise
        except Exception as error:  # whatever the model's code may raise
            raise diagnose(error, self._place) from error


def _check_read(
    joint: JointGraph,
    drafts: Drafts,
    phases: Phases,
    held: Sequence[ModelTensor],
    gradients: Sequence[TracedTensor | None],
) -> None:
    """CaptureError for a weight that no forward operator reads, though an autograd.Function gives it a gradient."""
    read = {key for one in phases.forward for key in one.inputs}
    unread = [
        tensor.name
        for tensor, node, gradient in zip(held, joint.inputs, gradients, strict=False)
        if gradient is not None and drafts.key(node) not in read
    ]
    if unread:
        raise CaptureError(
            "A weight has a gradient, but nothing in the forward pass reads it, so no stage of a plan would hold it",
            found=", ".join(unread[:5]),
            remedy="Use the weight in forward of the autograd.Function, too, or register it as a buffer.",
        )


@contextmanager
def _drawn_outside_torch() -> Iterator[Callable[[], frozenset[str]]]:
    """Yields what names the generators of Python and NumPy that have been drawn from since."""

    def states() -> dict[str, str]:
        numpy = np.random.get_state(legacy=False)  # noqa: NPY002  # the one that models use
        return {"Python": repr(random.getstate()), "NumPy": repr(numpy)}

    before = states()
    yield lambda: frozenset(name for name, state in states().items() if state != before[name])


def _first(names: Collection[str]) -> str:
    """'a, b, c and 3 more'; '' is the model itself."""
    shown = [name or "the model itself" for name in sorted(names)[:3]]
    return ", ".join(shown) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _within(name: str, paths: Collection[str]) -> bool:
    """Whether a tensor of the model is in one of these modules."""
    return any(not path or name.startswith(f"{path}.") for path in paths)


def _module(model: nn.Module | str | os.PathLike[str]) -> tuple[nn.Module, str]:
    """The module to trace and its default name; CaptureError for anything but a module or an ONNX file."""
    if isinstance(model, str | os.PathLike) and Path(model).suffix == ".onnx":
        return load_onnx(model), Path(model).stem
    if isinstance(model, torch.jit.ScriptModule):
        raise CaptureError(
            "A model of TorchScript has no Python code to trace",
            found=type(model).__name__,
            remedy="Pass the torch.nn.Module that torch.jit.trace or torch.jit.script was given.",
        )
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise CaptureError(
            "The model is a class", found=model.__name__, remedy=f"Pass one of its modules: {model.__name__}(…)."
        )
    if not isinstance(model, nn.Module):
        raise CaptureError(
            "The model is not a torch module",
            found=type(model).__name__,
            remedy="Pass a torch.nn.Module, or the path of an .onnx file.",
        )
    module: nn.Module = getattr(model, "_orig_mod", model)  # the module that torch.compile wraps
    while isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        module = module.module  # how the batch is divided is for the plan to say
    return module, type(module).__name__


def _loss(loss: Loss) -> Loss:
    if isinstance(loss, type):
        raise CaptureError(
            "The loss is a class", found=loss.__name__, remedy=f"Pass one of its objects: loss={loss.__name__}()."
        )
    return loss


def _dtype(precision: str | None) -> torch.dtype | None:
    if precision is None:
        return None
    precision = full_precision(precision)
    if precision not in PRECISIONS:
        if recipe_of(precision):
            raise OptionError(
                "A model is captured in the dtype of its tensors",
                found=f"precision={precision!r}, which is one of products",
                remedy="Capture it in bfloat16, and give this precision to ax.plan.",
            )
        known = (*PRECISIONS, *LOW_PRECISIONS)
        raise OptionError("Unknown precision", found=repr(precision), remedy=nearest_names(str(precision), known))
    dtype: torch.dtype = getattr(torch, precision)
    return dtype
