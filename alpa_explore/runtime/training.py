"""What is trained: the weights to begin with, and the microbatches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.models.recipe import follow
from alpa_explore.plans.records import ModelSummary
from alpa_explore.programs.execution.execute import Values
from alpa_explore.tracing.evaluate import initial_weights, input_values
from alpa_explore.tracing.inputs.example import microbatch_tensors

Data = Callable[[int], Any] | Sequence[Any]
"""Number of a microbatch -> its inputs, or a list of them, which is gone through again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnModel:
    """A model that no recipe makes, with one microbatch as it was captured with and, where there is one, more data."""

    model: torch.nn.Module
    example_inputs: Any
    loss: Any = None
    data: Data | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Microbatches:
    """Number -> the inputs of that microbatch by tensor of the graph. It is sent to the ranks."""

    graph: TrainingGraph
    data: Data
    loss: Any

    def __call__(self, number: int) -> Values:
        """The inputs of one microbatch."""
        inputs = self.data(number) if callable(self.data) else self.data[number % len(self.data)]
        return input_values(self.graph, microbatch_tensors(inputs, self.loss))


@dataclass(frozen=True, slots=True, kw_only=True)
class Varied:
    """Data for a model that came with a single microbatch: its samples in another order each time, and whole numbers of
    two dims (tokens) moved along. Made up, but no two microbatches are equal."""

    inputs: tuple[torch.Tensor, ...]

    def __call__(self, number: int) -> tuple[torch.Tensor, ...]:
        """The tensors of one microbatch."""
        generator = torch.Generator().manual_seed(number)
        order = torch.randperm(len(self.inputs[0]), generator=generator)
        return tuple(self._moved(t, order, number) for t in self.inputs)

    def _moved(self, value: torch.Tensor, order: torch.Tensor, number: int) -> torch.Tensor:
        if value.dim() and len(value) == len(order):
            value = value[order]
        tokens = value.dim() == 2 and not value.is_floating_point() and value.dtype != torch.bool
        return torch.roll(value, number, dims=1) if tokens else value


def training(
    graph: TrainingGraph, summary: ModelSummary, own: OwnModel | None, *, seed: int, allow_import: bool
) -> tuple[Values, Microbatches]:
    """Initial weights and buffers by tensor of `graph`, and the microbatches; raises as `recipe.follow`."""
    if own is None:
        made = follow(summary.recipe, summary.samples, device="cpu", seed=seed, allow_import=allow_import)
        own = OwnModel(model=made.model, example_inputs=made.example_inputs, loss=made.loss, data=made.microbatch)
    weights = initial_weights(graph, own.model)
    if own.data is not None:
        if not callable(own.data) and not len(own.data):
            raise OptionError("There is no data", found="an empty list", remedy="Give one microbatch or more.")
        return weights, Microbatches(graph=graph, data=own.data, loss=own.loss)
    tensors = tuple(microbatch_tensors(own.example_inputs, own.loss))
    return weights, Microbatches(graph=graph, data=Varied(inputs=tensors), loss=None)
