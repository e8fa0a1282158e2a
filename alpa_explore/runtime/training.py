"""The initial weights and the microbatches of a run."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.models.recipe import build_from_recipe
from alpa_explore.plans.records import ModelSummary
from alpa_explore.programs.execution.execute import Values
from alpa_explore.programs.program import Count, Load, Program
from alpa_explore.tracing.evaluate import initial_weights, input_values
from alpa_explore.tracing.inputs.example import microbatch_tensors

Data = Callable[..., Any] | Sequence[Any]
"""A function number of a microbatch -> its inputs, or a list of inputs, which is repeated. A function with a parameter
`place=None` gets the `Place` of the rank that calls it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in a run the function of the data is called."""

    rank: int
    ranks: int
    """The number of ranks."""
    samples: tuple[int, int]
    """(first, behind the last) sample of a microbatch that this rank takes; (0, 0) where it takes none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnModel:
    """A model without a recipe, with the microbatch that it was captured with and, optionally, more data."""

    model: torch.nn.Module
    example_inputs: Any
    loss: Any = None
    data: Data | None = None

    @property
    def first_microbatch(self) -> Any:
        """Inputs in the form of all microbatches."""
        if self.example_inputs is not None or self.data is None:
            return self.example_inputs
        return self.data(0) if callable(self.data) else self.data[0]


def own_model(model: torch.nn.Module | None, example_inputs: Any, loss: Any, data: Data | None) -> OwnModel | None:
    """The user's own model, if there is one. OptionError where it has no data."""
    if model is None:
        return None
    if example_inputs is None and data is None:
        raise OptionError(
            "A model of your own needs data",
            found="model= alone",
            remedy="Give example_inputs=, as for the capture, or data= (a list of microbatches, or a function "
            "number -> microbatch).",
        )
    return OwnModel(model=model, example_inputs=example_inputs, loss=loss, data=data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Microbatches:
    """Number of a microbatch -> its inputs, by tensor of the graph. It is sent to the ranks."""

    graph: TrainingGraph
    data: Data
    loss: Any
    place: Place | None = None
    """Of the rank to which this was sent."""

    def __call__(self, number: int) -> Values:
        """The inputs of one microbatch."""
        if not callable(self.data):
            inputs = self.data[number % len(self.data)]
        elif self.place is not None and takes_place(self.data):
            inputs = self.data(number, place=self.place)
        else:
            inputs = self.data(number)
        return input_values(self.graph, microbatch_tensors(inputs, self.loss))


def takes_place(function: Callable[..., Any]) -> bool:
    """Whether a function has a parameter `place`."""
    try:
        return "place" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a built-in function
        return False


def place_of(program: Program, rank: int) -> Place:
    """The place of a rank: of the samples, all that any of its instructions reads."""
    graph = program.graph
    boxes: list[tuple[int, int]] = []
    for _, _, instruction in program.instructions(rank):
        if isinstance(instruction, Count):  # of the targets of all samples
            boxes.append((0, max(graph.tensors[t].shape[0] for t in graph.inputs if graph.tensors[t].shape)))
        elif isinstance(instruction, Load) and instruction.box:
            boxes.append(instruction.box[0])
    samples = (min(first for first, _ in boxes), max(last for _, last in boxes)) if boxes else (0, 0)
    return Place(rank=rank, ranks=len(program.ranks), samples=samples)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Recut:
    """The samples of `data`, in microbatches of another size.

    Tensors whose first dim is the number of samples are cut; any other tensor of a microbatch is taken as it is.
    """

    data: Callable[[int], Sequence[torch.Tensor]]
    """Number of a microbatch of `samples` samples -> its tensors."""
    samples: int
    wanted: int

    def __call__(self, number: int) -> tuple[torch.Tensor, ...]:
        """The tensors of one microbatch of `wanted` samples."""
        first, last = number * self.wanted, (number + 1) * self.wanted
        start = first // self.samples
        sources = [self.data(n) for n in range(start, -(-last // self.samples))]
        begin = first - start * self.samples
        return tuple(
            torch.cat(parts)[begin : begin + self.wanted] if parts[0].shape[:1] == (self.samples,) else parts[0]
            for parts in zip(*sources, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flat:
    """Number of a microbatch -> its tensors."""

    data: Callable[..., Any]
    loss: Any

    def __call__(self, number: int) -> list[torch.Tensor]:
        return microbatch_tensors(self.data(number), self.loss)


def from_recipe(summary: ModelSummary, samples: int, *, seed: int, allow_import: bool) -> OwnModel:
    """The model of a recipe with real weights; raises as `build_from_recipe`."""
    recipe = build_from_recipe(summary.recipe, samples, device="cpu", seed=seed, allow_import=allow_import)
    return OwnModel(model=recipe.model, example_inputs=recipe.example_inputs, loss=recipe.loss, data=recipe.microbatch)


def training(
    graph: TrainingGraph,
    summary: ModelSummary,
    source: OwnModel | None,
    *,
    seed: int,
    allow_import: bool,
    stream_samples: int | None = None,
) -> tuple[Values, Microbatches]:
    """Initial weights and buffers by tensor of `graph`, and the microbatches; raises as `build_from_recipe`.

    `stream_samples` is the size of the microbatches with which a resumed training of a recipe began: its samples are
    used on, cut into microbatches of this plan.
    """
    if source is None:
        samples = stream_samples or summary.samples
        source = from_recipe(summary, samples, seed=seed, allow_import=allow_import)
        if samples != summary.samples:
            flat = (
                _Flat(data=source.data, loss=source.loss)
                if callable(source.data)
                else Varied(inputs=tuple(microbatch_tensors(source.example_inputs, source.loss)))
            )
            recut = Recut(data=flat, samples=samples, wanted=summary.samples)
            return initial_weights(graph, source.model), Microbatches(graph=graph, data=recut, loss=None)
    weights = initial_weights(graph, source.model)
    if source.data is not None:
        if not callable(source.data) and not len(source.data):
            raise OptionError("There is no data", found="an empty list", remedy="Give one microbatch or more.")
        return weights, Microbatches(graph=graph, data=source.data, loss=source.loss)
    tensors = tuple(microbatch_tensors(source.example_inputs, source.loss))
    return weights, Microbatches(graph=graph, data=Varied(inputs=tensors), loss=None)
