"""The proof of capture: the graph, run operator by operator, gives the loss and every gradient of torch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from alpa_explore.graph import TrainingGraph
from alpa_explore.tracing.evaluate import evaluate, initial_values
from alpa_explore.tracing.inputs.losses import divide, scalar_loss


def assert_autograd(
    graph: TrainingGraph,
    model: nn.Module,
    inputs: Any,
    loss: Any = None,
    *,
    called: Callable[..., Any] | None = None,
    **close: float,
) -> dict[int, torch.Tensor]:
    """Compares with `called`, or the model, by the attention that capture traces and the same random numbers; returns
    the values of the graph. `close`: rtol and atol of gradients; by default rounding, of float64 1e-10."""
    start = initial_values(graph, model, inputs, loss)
    torch.manual_seed(7)
    values = evaluate(graph, start)
    torch.manual_seed(7)
    model.zero_grad()
    call = divide(inputs, loss)
    with sdpa_kernel(SDPBackend.MATH):
        expected = scalar_loss((called or model)(*call.arguments, **call.keywords), call.targets, loss)
    expected.backward()
    exact = {"rtol": 1e-10, "atol": 1e-10} if expected.dtype is torch.float64 else {}
    torch.testing.assert_close(values[graph.loss], expected.detach(), **exact)
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    for parameter in graph.parameters:
        expected, found = gradients[parameter.name], values[parameter.gradient]
        torch.testing.assert_close(
            found, expected, msg=lambda said, p=parameter: f"{p.name}: {said}", **(close or exact)
        )
    return values
