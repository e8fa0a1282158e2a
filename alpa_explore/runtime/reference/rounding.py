"""How large the rounding errors of every gradient, and of every buffer that is written, are, measured: what an error of
one that is zero is held against.

A bias before a batch norm, or of the keys of attention, has the gradient zero: what is computed is the sum of rounding
errors of the terms that cancel, and two correct programs differ by all of it. The size of these errors is measured by
random rounding (CESTAC; Vignes 1993, "A stochastic arithmetic for reliable scientific computation"): the graph is
evaluated some times more, where each number that an operator computes is moved by one unit in its last place, up or
down at random. The spread of a gradient is what such errors amount to in it.

With n the spread and ε the unit of the dtype, n/ε is the size of the terms: sums of numbers as large have such errors.
It is taken as the scale of a gradient where that is larger than the gradient itself, but never more than the largest
norm of a tensor of the backward pass: where a choice (the largest expert, a sign) hangs on the last digit, the spread
is more than rounding. Where a gradient comes from tensors of a coarser dtype (autocast), that bound is larger by as
much as their unit is. A float64 gradient that comes from coarser tensors has their rounding errors: ε is then that of
float32, so that an error that their rounding does not explain is seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

import torch

from alpa_explore.graph import Phase, TrainingGraph
from alpa_explore.programs.execution.execute import Values
from alpa_explore.tracing.evaluate import evaluate

SAMPLES = 3
"""Evaluations with random rounding. Their median: in one of them a choice may fall differently, or errors cancel."""
TERMS = 0.25
"""Share of n/ε that is taken as the scale: with a tolerance of 1e-5 and 32 bits, errors up to 21 times the spread
pass, which sums in another order have; 1.1 times with 16 bits and a tolerance of 3e-2."""


def rounding_scales(graph: TrainingGraph, values: Mapping[int, torch.Tensor]) -> dict[int, float]:
    """For the gradient of each parameter, and the new value of each buffer that is written, the size of its terms, as
    its rounding errors show it; 0 of integers.

    `values` are the weights, buffers and inputs of one microbatch, by tensor; so is the result.
    """
    results = evaluate(graph, values)
    gradients = {parameter.gradient for parameter in graph.parameters}
    new = {one.value for one in graph.written if one.value is not None}
    exact = {tensor: results[tensor] for tensor in sorted(gradients | new) if _rounds(results[tensor])}
    bounds = {phase: _Bound(graph, phase, results) for phase in (Phase.FORWARD, Phase.BACKWARD)}
    spreads: dict[int, list[float]] = {tensor: [] for tensor in exact}
    for seed in range(SAMPLES):
        generator = torch.Generator(next(iter(values.values())).device).manual_seed(seed)

        def rounded(made: torch.Tensor, generator: torch.Generator = generator) -> torch.Tensor:
            if not _rounds(made) or made.dtype.itemsize < 2:
                return made
            up = torch.randint(2, made.shape, generator=generator, device=made.device)
            by = made * ((2 * up - 1) * torch.finfo(made.dtype).eps).to(made.dtype)
            return torch.where(made.isfinite(), made + by, made)  # a mask of scores has -inf, which is exact

        moved = evaluate(graph, values, rounded)
        for tensor, value in exact.items():
            error = (moved[tensor].to(_wide(value)) - value.to(_wide(value))).abs()
            spreads[tensor].append(float(error.max()) if error.numel() else 0.0)
    scales = dict.fromkeys(gradients | new, 0.0)
    for tensor, value in exact.items():
        bound = bounds[Phase.BACKWARD if tensor in gradients else Phase.FORWARD]
        eps = min(bound.coarsest, max(torch.finfo(value.dtype).eps, torch.finfo(torch.float32).eps))
        scales[tensor] = min(TERMS * median(spreads[tensor]) / eps, bound.most * max(1.0, bound.coarsest / eps))
    return scales


class _Bound:
    """The largest norm, and the coarsest unit, of the tensors that operators of one phase make."""

    def __init__(self, graph: TrainingGraph, phase: Phase, results: Values) -> None:
        made = [results[t] for o in graph.operators if o.phase is phase for t in o.outputs if _rounds(results[t])]
        self.most = max(map(_norm, made), default=0.0)
        self.coarsest = max((torch.finfo(t.dtype).eps for t in made), default=0.0)


def _rounds(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _norm(tensor: torch.Tensor) -> float:
    """The root of the sum of all squares, of those that are finite."""
    return float(torch.linalg.vector_norm(tensor[tensor.isfinite()].to(_wide(tensor))))


def _wide(tensor: torch.Tensor) -> torch.dtype:
    return torch.complex128 if tensor.is_complex() else torch.float64
