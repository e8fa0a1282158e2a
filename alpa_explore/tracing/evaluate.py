"""Run a captured graph on real tensors, operator by operator: the reference for all other executors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from alpa_explore.errors import CaptureError
from alpa_explore.graph import TensorKind, TrainingGraph
from alpa_explore.tracing.aten import run_operator
from alpa_explore.tracing.inputs.example import flatten_example
from alpa_explore.tracing.inputs.fake_model import attribute_named
from alpa_explore.tracing.inputs.losses import Loss
from alpa_explore.tracing.targets import LOSSES, run_counted


def initial_values(
    graph: TrainingGraph,
    model: nn.Module,
    example_inputs: tuple[Any, ...] | Mapping[str, Any] | Tensor,
    loss: Loss = None,
) -> dict[int, Tensor]:
    """Tensor index -> value for every tensor that no operator makes, cast to the graph's dtype.

    `model`, `example_inputs` and `loss` are those of the capture, with real values now. CaptureError names a tensor of
    the graph that the model does not have.
    """
    example = flatten_example(model, example_inputs, loss)
    return {**initial_weights(graph, model), **input_values(graph, example.tensors)}


def input_values(graph: TrainingGraph, tensors: Sequence[Tensor]) -> dict[int, Tensor]:
    """The tensors of one microbatch, in the order of `example.microbatch_tensors`, by tensor index."""
    if len(tensors) != len(graph.inputs):
        raise CaptureError(
            "A microbatch has a different number of inputs than the captured one",
            found=f"{len(tensors)} tensors instead of {len(graph.inputs)}",
            remedy="Give microbatches in the form of the example inputs of the capture.",
        )
    values = {}
    for index, value in zip(graph.inputs, tensors, strict=True):
        tensor = graph.tensors[index]
        if tuple(value.shape) != tensor.shape:
            raise CaptureError(
                "A microbatch has a different shape than the captured one",
                found=f"{tensor.name} of {list(value.shape)} instead of {list(tensor.shape)}",
                remedy="Make every microbatch as large as the example inputs of the capture.",
            )
        values[index] = value.detach().to(getattr(torch, tensor.dtype))
    return values


def initial_weights(graph: TrainingGraph, model: nn.Module) -> dict[int, Tensor]:
    """Tensor index -> value of every parameter and buffer, cast to the graph's dtype. CaptureError names one that the
    model does not have."""
    held = {**dict(model.named_buffers(remove_duplicate=False)), **dict(model.named_parameters(remove_duplicate=False))}
    values: dict[int, Tensor] = {}
    for tensor in graph.tensors:
        if tensor.producer is not None or tensor.kind is TensorKind.INPUT:
            continue
        value = held.get(tensor.name)
        if value is None:
            value = attribute_named(model, tensor.name)
        if value is None or value.is_meta or tuple(value.shape) != tensor.shape:
            raise CaptureError(
                "The model and the graph do not belong together",
                found=f"{tensor.kind.value} {tensor.name} of shape {list(tensor.shape)}",
                remedy="Use the model that the graph was captured from, with real weights, or capture again.",
            )
        values[tensor.index] = value.detach().to(getattr(torch, tensor.dtype))
    return values


@torch.no_grad()
def evaluate(
    graph: TrainingGraph, values: Mapping[int, Tensor], rounded: Callable[[Tensor], Tensor] | None = None
) -> dict[int, Tensor]:
    """Every tensor of the graph except the updated parameters: forward, backward and gradient sums.

    With `rounded`, everything that an operator computes, rather than moves, goes through it. A mean loss divides by
    the mean count of targets if `targets.with_counts` put it among the values.
    """
    results = dict(values)
    device = next(iter(results.values())).device
    for operator in graph.operators:
        if operator.kind in LOSSES and operator.outputs[1] in values:
            made = run_counted(operator, results)
        elif not operator.kind.startswith("optimizer."):
            made = run_operator(operator, results, device)
        else:
            continue
        computed = made if rounded is None or not operator.flops else map(rounded, made)
        results.update(zip(operator.outputs, computed, strict=True))
    return results
