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
is more than rounding. A float64 gradient that comes from coarser tensors has their rounding errors: ε is then that of
float32, so that an error that their rounding does not explain is seen.

Where operators compute in 16 bits, no tolerance is right for all gradients: in bfloat16 sums in another order differ by
0.2 to 2 %, as deep as the model is. There the spread itself is the limit. An entry may be off by `SLACK` times the
spread of entries; and the gradient as a whole, along its own direction, by `SLACK` times the spread of that, in which
the errors of its entries cancel: of a matrix a wrong scale of 1 % is seen, which no entry shows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median

import torch

from alpa_explore.graph import Phase, TrainingGraph
from alpa_explore.programs.execution.execute import Values
from alpa_explore.tracing.evaluate import evaluate

SAMPLES = 3
"""Evaluations with random rounding. Their median: in one of them a choice may fall differently, or errors cancel."""
TERMS = 0.25
"""Share of n/ε that is taken as the scale: with a tolerance of 1e-5 and 32 bits, errors up to 21 times the spread
pass, which sums in another order have."""


SAMPLES_16 = 8
"""Evaluations where the spread is the limit, and not only a scale."""
SLACK = 3.0
"""Random rounding moves each number by a whole unit, true rounding by 0.3 of one in the mean: sums in another order
were off by 1.3 of the spread at most, in 160 gradients of a transformer in bfloat16 and under autocast."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """What rounding makes of one tensor."""

    scale: float = 0.0
    """The size of its terms, as its rounding errors show it; 0 of integers, and where a limit is known instead."""
    entry: float = 0.0
    """The largest error of an entry that rounding explains; 0 where nothing is computed in 16 bits: there a tolerance
    decides."""
    along: float = 0.0
    """The largest error along the tensor's own direction that rounding explains, of its norm (`along`)."""


EXACT = Rounding()
"""Of what two correct programs compute alike."""


def rounding_of(graph: TrainingGraph, values: Mapping[int, torch.Tensor]) -> dict[int, Rounding]:
    """Of the loss, the gradient of each parameter, and the new value of each buffer that is written.

    `values` are the weights, buffers and inputs of one microbatch, by tensor; so is the result.
    """
    results = evaluate(graph, values)
    gradients = {parameter.gradient for parameter in graph.parameters}
    new = {one.value for one in graph.written if one.value is not None}
    wanted = sorted(gradients | new | {graph.loss})
    exact = {tensor: results[tensor] for tensor in wanted if _rounds(results[tensor])}
    bounds = {phase: _Bound(graph, phase, results) for phase in (Phase.FORWARD, Phase.BACKWARD)}
    single = torch.finfo(torch.float32).eps
    coarse = max(bound.coarsest for bound in bounds.values()) > single
    entries: dict[int, list[float]] = {tensor: [] for tensor in exact}
    whole: dict[int, list[float]] = {tensor: [] for tensor in exact}
    for seed in range(SAMPLES_16 if coarse else SAMPLES):
        generator = torch.Generator(next(iter(values.values())).device).manual_seed(seed)

        def rounded(made: torch.Tensor, generator: torch.Generator = generator) -> torch.Tensor:
            if not _rounds(made) or made.dtype.itemsize < 2:
                return made
            up = torch.randint(2, made.shape, generator=generator, device=made.device)
            by = made * ((2 * up - 1) * torch.finfo(made.dtype).eps).to(made.dtype)
            return torch.where(made.isfinite(), made + by, made)  # a mask of scores has -inf, which is exact

        moved = evaluate(graph, values, rounded)
        for tensor, value in exact.items():
            error = (moved[tensor].to(wide(value)) - value.to(wide(value))).abs()
            entries[tensor].append(float(error.max()) if error.numel() else 0.0)
            whole[tensor].append(along(moved[tensor], value))
    found = dict.fromkeys(wanted, EXACT)
    for tensor, value in exact.items():
        bound = bounds[Phase.BACKWARD if tensor in gradients else Phase.FORWARD]
        eps = min(bound.coarsest, max(torch.finfo(value.dtype).eps, single))
        if coarse:
            entry, along_it = (SLACK * _mean_square(errors[tensor]) for errors in (entries, whole))
            found[tensor] = Rounding(entry=min(entry, bound.most), along=min(along_it, bound.most))
        else:
            found[tensor] = Rounding(scale=min(TERMS * median(entries[tensor]) / eps, bound.most))
    return found


def along(made: torch.Tensor, wanted: torch.Tensor) -> float:
    """How much longer `made` is in the direction of `wanted`: 0.01 of its norm where all entries are 1 % too large."""
    one, other = made.to(wide(wanted)).flatten(), wanted.to(wide(wanted)).flatten()
    norm = float(torch.linalg.vector_norm(other))
    return float(torch.vdot(other, one - other).real) / norm if norm else 0.0


def _mean_square(errors: list[float]) -> float:
    return sqrt(fmean(error * error for error in errors))


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
    return float(torch.linalg.vector_norm(tensor[tensor.isfinite()].to(wide(tensor))))


def wide(tensor: torch.Tensor) -> torch.dtype:
    """The widest dtype of its kind, in which norms and differences are taken."""
    return torch.complex128 if tensor.is_complex() else torch.float64
