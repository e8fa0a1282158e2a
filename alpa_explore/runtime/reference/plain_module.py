"""Compare a captured graph with the user's module in plain PyTorch, from the same weights: the loss and gradients of
one microbatch, and the buffers that the module writes, after all microbatches of a step.

`one_process` compares the ranks of a run with the captured graph, which shows faults of the plan and of the runtime. A
fault of capture is in that graph itself, so it shows only here: the loss, the gradient of every parameter, and every
weight after one step of torch's own optimizer on the whole module.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from alpa_explore.errors import AlpaExploreError, OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.programs.execution.execute import Values
from alpa_explore.programs.execution.optimizer_step import OPTIMIZERS
from alpa_explore.runtime.reference.one_process import Difference, OneProcess, compared, largest_difference
from alpa_explore.runtime.training import OwnModel
from alpa_explore.tracing.autocast import autocast_as_written
from alpa_explore.tracing.inputs.example import flatten_example
from alpa_explore.tracing.inputs.fake_model import attributes_restored
from alpa_explore.tracing.inputs.losses import scalar_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCheck:
    """What the microbatches of one step of the module show."""

    differences: tuple[Difference, ...]
    """Of step 0: 'module loss', 'module gradient', 'module weight' and 'module buffer'."""
    written: tuple[str, ...]
    """Buffers that the forward pass of the module writes and a run does not."""


def check_module(
    graph: TrainingGraph,
    source: OwnModel,
    state: Values,
    microbatches: Sequence[Values],
    learning_rate: float,
    frozen: Collection[str] = (),
) -> ModuleCheck:
    """Run the microbatches of a step with the graph and with the module of `source`: the backward pass of the first,
    and, where the graph has buffers that are written, the forward pass of the others.

    `state` and `microbatches` give the weights, buffers and inputs by tensor of `graph`; `frozen` are the buffers that
    a run does not write. They are those after the forward pass: what torch's checkpoint computes again in the backward
    pass writes nothing here, as in a run. The module is not changed.
    """
    first, *others = microbatches
    reference = OneProcess(graph, state, learning_rate, frozen)
    reference.measure(first)
    # By itself, so a mean over targets divides by those of this microbatch, as the module does.
    captured_loss, captured = reference.gradients([first])
    with _with_state(source.model, graph, state) as module:
        before = {name: buffer.clone() for name, buffer in module.named_buffers()}
        example = flatten_example(module, source.first_microbatch, source.loss)

        def forward(microbatch: Values) -> torch.Tensor:
            call = example.rebuild([microbatch[index] for index in graph.inputs])
            return scalar_loss(module(*call.arguments, **call.keywords), call.targets, source.loss)

        # A region of autocast for a GPU computes in its dtype without one, too, as in the captured graph.
        with torch.enable_grad(), autocast_as_written(), _failures_named():
            loss = forward(first)
            after = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
            torch.autograd.backward(loss)
        for name, held in module.named_buffers():  # what torch's checkpoint recomputes it writes a second time
            held.data = after[name]
        wanted_loss = float(loss.detach())
        trained = dict(module.named_parameters())
        gradients = {name: weight.grad for name, weight in trained.items() if weight.grad is not None}
        differences = [reference.loss_compared(0, "module loss", captured_loss, wanted_loss)]
        for place, parameter in enumerate(graph.parameters):
            weight = trained[parameter.name]
            wanted = gradients.pop(parameter.name, torch.zeros_like(weight))
            error = largest_difference(captured[place], wanted)
            differences += reference.gradient_compared(0, "module gradient", place, error, captured[place], wanted)
            # From the same gradient: Adam's first step has the sign of a gradient even where rounding decides it.
            kind = graph.operators[parameter.update].kind
            updated = _step(kind, weight, wanted, learning_rate)
            error = largest_difference(reference.updated(place, wanted), updated)
            differences.append(compared(0, "module weight", parameter.name, error, updated))
        # What the module trains and the graph does not.
        differences += [compared(0, "module gradient", name, math.inf, g) for name, g in gradients.items() if g.any()]
        if others and reference.buffers:
            reference.gradients(others)
            with torch.no_grad(), autocast_as_written(), _failures_named():
                for microbatch in others:
                    forward(microbatch)
        made = dict(module.named_buffers(remove_duplicate=False)) | dict(
            module.named_parameters(remove_duplicate=False)
        )
        compared_names = set()
        for buffer, value in reference.buffers.items():
            name, wanted = graph.tensors[buffer].name, made[graph.tensors[buffer].name]
            compared_names.add(name)
            error = largest_difference(reference.state[buffer], wanted)
            differences.append(compared(0, "module buffer", name, error, wanted, reference.roundings[value]))
        written = tuple(
            name
            for name, buffer in module.named_buffers()
            if name not in compared_names and not torch.equal(buffer, before[name])
        )
        return ModuleCheck(differences=tuple(differences), written=written)


@contextmanager
def _failures_named() -> Iterator[None]:
    """OptionError for what the code of the module raises."""
    try:
        yield
    except AlpaExploreError:
        raise
    except Exception as error:  # whatever the model's code may raise
        raise OptionError(
            "The module fails in plain PyTorch on this machine, so a run cannot be compared with it",
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
            remedy="Run the module and its backward pass once on one of these microbatches, on the CPU. What only a GPU"
            " runs cannot be verified here; `launch` trains it.",
        ) from error


@contextmanager
def _with_state(model: nn.Module, graph: TrainingGraph, state: Values) -> Iterator[nn.Module]:
    """The model with the weights and buffers of `state`, in the dtypes of the graph; it has its own again at the end.

    Not a copy: one has no hooks of tensors, and what a function of the model reads from around it is the original's.
    """
    values = {graph.tensors[index].name: value for index, value in state.items()}
    slots = [
        (f"{path}.{name}" if path else name, tensors, name, tensor)
        for path, part in model.named_modules()
        for tensors in (part._parameters, part._buffers)
        for name, tensor in tensors.items()
        if tensor is not None
    ]
    # A tensor in two slots is saved, and given back, once.
    saved = {id(tensor): (tensor, tensor.data, tensor.grad) for *_, tensor in slots}
    modes = [(part, part.training) for part in model.modules()]
    try:
        with attributes_restored(model):
            for full_name, _, _, tensor in slots:
                tensor.grad = None
                value = values.get(full_name)
                # What the forward pass writes must not reach the user's weights and buffers.
                tensor.data = tensor.data.clone() if value is None else value.detach().clone()
            yield model
    finally:
        for _, tensors, name, tensor in slots:
            tensors[name] = tensor
        for tensor, data, gradient in saved.values():
            tensor.data, tensor.grad = data, gradient
        for part, mode in modes:
            part.training = mode


def _step(kind: str, weight: torch.Tensor, gradient: torch.Tensor, learning_rate: float) -> torch.Tensor:
    """A weight after one step of torch's optimizer, with a master copy of 32 bits for one of 16."""
    master = torch.nn.Parameter(weight.detach().clone() if weight.dtype.itemsize >= 4 else weight.detach().float())
    master.grad = gradient.to(master.dtype)
    OPTIMIZERS[kind]([master], learning_rate).step()
    return master.detach().to(weight.dtype)
