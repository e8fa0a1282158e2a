"""Targets that count, over all microbatches of an iteration.

A mean loss over targets, some of which are ignored or weigh less, is Σ_m S_m / Σ_m C_m for an iteration: S_m is the sum
of the losses of microbatch m, C_m the number (or weight) of its targets. The mean of S_m / C_m is something else, but
with C̄ = Σ_m C_m / B

    1/B · Σ_m S_m / C̄  =  Σ_m S_m / Σ_m C_m

so every microbatch divides by C̄, and gradients are right with it, beside any other term of the loss. C̄ is known before
the iteration where targets come from the inputs alone. A mean that the model divides by itself stays one of each
microbatch, and so does one over targets that its weights make.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

import torch

from alpa_explore.graph import Operator, TensorKind, TrainingGraph
from alpa_explore.tracing.aten import draws, run_operator

LOSSES = ("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default")
"""(scores, targets, weight?, reduction, ignored) -> (loss, C)."""
_MEAN, _SUM = 1, 2
Values = Mapping[int, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLoss:
    """A mean loss whose targets are known before the iteration."""

    operator: Operator
    before: tuple[Operator, ...]
    """What makes targets and their weights from the inputs, in order."""

    @property
    def total(self) -> int:
        """The tensor C."""
        return self.operator.outputs[1]

    def count(self, inputs: Values) -> torch.Tensor:
        """C of one microbatch."""
        known = dict(inputs)
        for operator in self.before:
            known.update(zip(operator.outputs, run_operator(operator, known), strict=True))
        targets, ignored = known[self.operator.inputs[1]], self.operator.arguments[4]
        there = targets.ne(cast(int, ignored))
        counted = there.double()
        if len(self.operator.inputs) > 2:
            counted *= known[self.operator.inputs[2]].double()[targets * there]
        return counted.sum()


def counted_losses(graph: TrainingGraph) -> dict[int, CountedLoss]:
    """By the place of the operator."""
    return {
        o.index: CountedLoss(operator=o, before=before)
        for o in graph.forward_operators
        if o.kind in LOSSES and o.arguments[3] == _MEAN and (before := _from_inputs(graph, o.inputs[1:])) is not None
    }


def _from_inputs(graph: TrainingGraph, tensors: tuple[int, ...]) -> tuple[Operator, ...] | None:
    """The operators that make `tensors` from inputs and constants of the code; None where weights
    or random numbers have a part in it."""
    found: dict[int, Operator] = {}
    waiting = list(tensors)
    while waiting:
        tensor = graph.tensors[waiting.pop()]
        if tensor.producer is not None and tensor.producer not in found:
            found[tensor.producer] = made = graph.operators[tensor.producer]
            waiting += made.inputs
            if draws(made.kind):
                return None
        elif tensor.producer is None and tensor.kind is not TensorKind.INPUT:
            return None
    return tuple(found[index] for index in sorted(found))


def mean_count(graph: TrainingGraph, loss: CountedLoss, load: Callable[[int], Values], count: int) -> torch.Tensor:
    """C̄ over `count` microbatches; `load(m)` gives the inputs of one."""
    dtype = getattr(torch, graph.tensors[loss.total].dtype)
    return torch.stack([loss.count(load(m)) for m in range(count)]).mean().to(dtype)


def with_counts(graph: TrainingGraph, microbatches: list[Values]) -> list[Values]:
    """The microbatches of an iteration with the C̄ of all losses among their values: `evaluate` then divides by it."""
    known = {
        loss.total: mean_count(graph, loss, microbatches.__getitem__, len(microbatches))
        for loss in counted_losses(graph).values()
    }
    return [{**one, **known} for one in microbatches]


def run_counted(operator: Operator, known: Values) -> tuple[torch.Tensor, ...]:
    """A mean loss by the C̄ that is among the known values."""
    added = (*operator.arguments[:3], _SUM, operator.arguments[4])
    total = known[operator.outputs[1]]
    return run_operator(replace(operator, arguments=added), known)[0] / total, total
