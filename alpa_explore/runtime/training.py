"""The initial weights and the microbatches of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.models.recipe import build_from_recipe
from alpa_explore.plans.records import ModelSummary
from alpa_explore.programs.execution.execute import Values
from alpa_explore.tracing.evaluate import initial_weights, input_values
from alpa_explore.tracing.inputs.example import microbatch_tensors

Data = Callable[[int], Any] | Sequence[Any]
"""A function number of a microbatch -> its inputs, or a list of inputs, which is repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnModel:
    """A model without a recipe, with the microbatch that it was captured with and, optionally, more data."""

    model: torch.nn.Module
    example_inputs: Any
    loss: Any = None
    data: Data | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Microbatches:
    """Number of a microbatch -> its inputs, by tensor of the graph. It is sent to the ranks."""

    graph: TrainingGraph
    data: Data
    loss: Any

    def __call__(self, number: int) -> Values:
        """The inputs of one microbatch."""
        inputs = self.data(number) if callable(self.data) else self.data[number % len(self.data)]
        return input_values(self.graph, microbatch_tensors(inputs, self.loss))


@dataclass(frozen=True, slots=True, kw_only=True)
class Varied:
    """Made-up data for a model with a single microbatch.

    Every microbatch has its samples in another order, and integers of two dims (tokens) rotated, so that no two
    microbatches are equal.
    """

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
    graph: TrainingGraph, summary: ModelSummary, source: OwnModel | None, *, seed: int, allow_import: bool
) -> tuple[Values, Microbatches]:
    """Initial weights and buffers by tensor of `graph`, and the microbatches; raises as `build_from_recipe`."""
    if source is None:
        recipe = build_from_recipe(summary.recipe, summary.samples, device="cpu", seed=seed, allow_import=allow_import)
        source = OwnModel(
            model=recipe.model, example_inputs=recipe.example_inputs, loss=recipe.loss, data=recipe.microbatch
        )
    weights = initial_weights(graph, source.model)
    if source.data is not None:
        if not callable(source.data) and not len(source.data):
            raise OptionError("There is no data", found="an empty list", remedy="Give one microbatch or more.")
        return weights, Microbatches(graph=graph, data=source.data, loss=source.loss)
    tensors = tuple(microbatch_tensors(source.example_inputs, source.loss))
    return weights, Microbatches(graph=graph, data=Varied(inputs=tensors), loss=None)
