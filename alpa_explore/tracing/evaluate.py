"""Running a captured graph on real tensors, operator by operator: the plainest executor, the judge of all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from alpa_explore.errors import CaptureError
from alpa_explore.graph import TensorKind, TrainingGraph
from alpa_explore.tracing.aten import run_operator
from alpa_explore.tracing.example import flatten_example
from alpa_explore.tracing.fake_model import attribute_named
from alpa_explore.tracing.losses import Loss


def initial_values(
    graph: TrainingGraph,
    model: nn.Module,
    example_inputs: tuple[Any, ...] | Mapping[str, Any] | torch.Tensor,
    loss: Loss = None,
) -> dict[int, torch.Tensor]:
    """Tensor index -> value for every tensor that no operator makes, cast to the graph's dtype.

    `model`, `example_inputs` and `loss` are those of the capture, with real values now. CaptureError names a tensor of
    the graph that the model does not have.
    """
    example = flatten_example(model, example_inputs, loss)
    given = dict(zip(graph.inputs, example.tensors, strict=True))
    held = {**dict(model.named_buffers(remove_duplicate=False)), **dict(model.named_parameters(remove_duplicate=False))}
    values: dict[int, torch.Tensor] = {}
    for tensor in graph.tensors:
        if tensor.producer is not None:
            continue
        if tensor.kind is TensorKind.INPUT:
            value = given[tensor.index]
        else:
            found = held.get(tensor.name)
            value = found if found is not None else attribute_named(model, tensor.name)  # type: ignore[assignment]
        if value is None or tuple(value.shape) != tensor.shape:
            raise CaptureError(
                "The model and the graph do not belong together",
                found=f"{tensor.kind.value} {tensor.name} of shape {list(tensor.shape)}",
                remedy="Use the model and the inputs that the graph was captured from, or capture again.",
            )
        values[tensor.index] = value.detach().to(getattr(torch, tensor.dtype))
    return values


@torch.no_grad()
def evaluate(graph: TrainingGraph, values: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Every tensor of the graph but the updated parameters: forward, backward and the sums of gradients, in order."""
    known = dict(values)
    device = next(iter(known.values())).device
    for operator in graph.operators:
        if not operator.kind.startswith("optimizer."):
            known.update(zip(operator.outputs, run_operator(operator, known, device), strict=True))
    return known
