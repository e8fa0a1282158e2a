"""Run a captured graph on real tensors, operator by operator: the reference for all other executors.

Mean losses have targets that are counted over all microbatches of an iteration. A mean loss over targets, some of which
are ignored or weigh less, is Σ_m S_m / Σ_m C_m for an iteration: S_m is the sum of the losses of microbatch m, C_m the
number (or weight) of its targets. The mean of S_m / C_m is a different value, but with C̄ = Σ_m C_m / B

    1/B · Σ_m S_m / C̄  =  Σ_m S_m / Σ_m C_m

so every microbatch divides by C̄ instead of C_m; gradients are then exact, also beside other terms of the loss. C̄ is
available before the iteration when targets depend on the inputs alone. A mean that the model computes with its own
division, and one over targets that depend on weights, remains a mean within each microbatch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from alpa_explore.errors import CaptureError
from alpa_explore.graph import Argument, Operator, Symbol, TensorKind, TrainingGraph
from alpa_explore.tracing.aten import draws, run_operator
from alpa_explore.tracing.inputs.example import flatten_example
from alpa_explore.tracing.inputs.fake_model import attribute_named
from alpa_explore.tracing.inputs.losses import Loss

LOSSES = ("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
"""(scores, targets, weight?, reduction, ignored) -> (loss, C)."""
_MEAN, _SUM = 1, 2
Values = Mapping[int, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLoss:
    """A mean loss whose targets can be computed before the iteration."""

    operator: Operator
    before: tuple[Operator, ...]
    """The operators that compute targets and their weights from the inputs, in order."""

    @property
    def total(self) -> int:
        """Index of the tensor C."""
        return self.operator.outputs[1]

    def count(self, inputs: Values) -> Tensor:
        """C of one microbatch, given its input tensors by index."""
        values = dict(inputs)
        for operator in self.before:
            values.update(zip(operator.outputs, run_operator(operator, values), strict=True))
        targets, ignored = values[self.operator.inputs[1]], self.operator.arguments[4]
        is_counted = targets.ne(cast(int, ignored))
        weights = is_counted.double()
        if len(self.operator.inputs) > 2:
            weights *= values[self.operator.inputs[2]].double()[targets * is_counted]
        return weights.sum()


def counted_losses(graph: TrainingGraph) -> dict[int, CountedLoss]:
    """The counted losses of `graph`, by index of their operator."""
    return {
        o.index: CountedLoss(operator=o, before=before)
        for o in graph.forward_operators
        if o.kind in LOSSES and o.arguments[3] == _MEAN and (before := _from_inputs(graph, o.inputs[1:])) is not None
    }


def _from_inputs(graph: TrainingGraph, tensors: tuple[int, ...]) -> tuple[Operator, ...] | None:
    """The operators that compute `tensors` from example inputs and literals; None when weights or random numbers are
    involved."""
    operators: dict[int, Operator] = {}
    waiting = list(tensors)
    while waiting:
        tensor = graph.tensors[waiting.pop()]
        if tensor.producer is not None and tensor.producer not in operators:
            operators[tensor.producer] = producer = graph.operators[tensor.producer]
            waiting += producer.inputs
            if draws(producer.kind):
                return None
        elif tensor.producer is None and tensor.kind is not TensorKind.INPUT:
            return None
    return tuple(operators[index] for index in sorted(operators))


def mean_count(graph: TrainingGraph, loss: CountedLoss, load: Callable[[int], Values], count: int) -> Tensor:
    """C̄ over `count` microbatches; `load(m)` gives the inputs of one."""
    dtype = getattr(torch, graph.tensors[loss.total].dtype)
    return torch.stack([loss.count(load(m)) for m in range(count)]).mean().to(dtype)


def with_counts(graph: TrainingGraph, microbatches: list[Values]) -> list[Values]:
    """The microbatches of an iteration, with the C̄ of all counted losses among their values for `evaluate`."""
    counts = {
        loss.total: mean_count(graph, loss, microbatches.__getitem__, len(microbatches))
        for loss in counted_losses(graph).values()
    }
    return [{**microbatch, **counts} for microbatch in microbatches]


def run_counted(operator: Operator, values: Values) -> tuple[Tensor, ...]:
    """A mean loss divided by the C̄ that is among `values`."""
    arguments = (*operator.arguments[:3], _SUM, operator.arguments[4])
    total = values[operator.outputs[1]]
    return run_operator(replace(operator, arguments=arguments), values)[0] / total, total


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
    graph: TrainingGraph,
    values: Mapping[int, Tensor],
    rounded: Callable[[Tensor], Tensor] | None = None,
    *,
    double: bool = False,
) -> dict[int, Tensor]:
    """Every tensor of the graph except the updated parameters: forward, backward and gradient sums.

    With `rounded`, everything that an operator computes, rather than moves, goes through it. With `double`, all that
    is float32 is computed in float64, and complex64 in complex128; RuntimeError where an operator cannot be. A mean
    loss divides by the mean count of targets if `with_counts` put it among the values.
    """
    results = {t: _doubled(value) for t, value in values.items()} if double else dict(values)
    device = next(iter(results.values())).device
    for operator in map(_in_double, graph.operators) if double else graph.operators:
        if operator.kind in LOSSES and operator.outputs[1] in values:
            made = run_counted(operator, results)
        elif not operator.kind.startswith("optimizer."):
            made = run_operator(operator, results, device)
        else:
            continue
        if double:
            made = tuple(map(_doubled, made))
        computed = made if rounded is None or not operator.flops else map(rounded, made)
        results.update(zip(operator.outputs, computed, strict=True))
    return results


_DOUBLE = {"float32": "float64", "complex64": "complex128"}


def _doubled(tensor: Tensor) -> Tensor:
    twice = _DOUBLE.get(str(tensor.dtype).removeprefix("torch."))
    return tensor if twice is None else tensor.to(getattr(torch, twice))


def _in_double(operator: Operator) -> Operator:
    """The operator with the dtypes among its arguments twice as wide."""

    def widened(argument: Argument) -> Argument:
        if isinstance(argument, Symbol) and argument.kind == "dtype":
            return replace(argument, value=_DOUBLE.get(argument.value, argument.value))
        return argument

    keywords = tuple((name, widened(argument)) for name, argument in operator.keywords)
    return replace(operator, arguments=tuple(map(widened, operator.arguments)), keywords=keywords)
