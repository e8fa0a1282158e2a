"""The values with which a captured graph begins."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from alpa_explore.graph import TrainingGraph
from alpa_explore.tracing.evaluate import initial_weights, input_values
from alpa_explore.tracing.inputs.example import flatten_example
from alpa_explore.tracing.inputs.losses import Loss


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
