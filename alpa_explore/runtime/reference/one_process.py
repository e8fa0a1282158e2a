"""One process as the reference of a run: the loss, every gradient and every updated weight, step by step.

Both start each step from the same weights, those of the ranks, so that rounding errors do not accumulate over steps; by
induction all steps are right. The error of a gradient is relative to the largest entry of the gradient, or to the size
of the terms that it is the sum of, where these cancel (`rounding_of`): a gradient that should be zero consists of
rounding errors only. An updated weight is compared with an optimizer step on the gradient of the ranks, because Adam's
step is ±learning rate even where a gradient is nearly zero and rounding decides its sign.

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

Random rounding knows nothing of the sums inside one operator: a convolution adds tens of thousands of terms to an entry
of the gradient of its kernel. How far that is off is measured, too: the graph is evaluated once in float64. An entry of
a run may be off by `SLACK` times as much as the reference in float32 is, and by `MOST` of the gradient at most. Where
that is less than `USUAL`, a tolerance alone decides, however small.

Where operators compute in 16 bits, no tolerance is right for all gradients: in bfloat16 sums in another order differ by
0.2 to 2 %, as deep as the model is. There the spread itself is the limit. An entry may be off by `SLACK` times the
spread of entries; and the gradient as a whole, along its own direction, by `SLACK` times the spread of that, in which
the errors of its entries cancel: of a matrix a wrong scale of 1 % is seen, which no entry shows.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median
from typing import Any

import torch

from alpa_explore.errors import OptionError
from alpa_explore.graph import Operator, Phase, TrainingGraph
from alpa_explore.programs.execution.execute import Values, cut
from alpa_explore.programs.execution.optimizer_step import PieceOptimizer
from alpa_explore.programs.program import Box
from alpa_explore.tracing.aten import draws
from alpa_explore.tracing.evaluate import evaluate, with_counts

SAMPLES = 3
"""Evaluations with random rounding. Their median: in one of them a choice may fall differently, or errors cancel."""
TERMS = 0.25
"""Share of n/ε that is taken as the scale: with a tolerance of 1e-5 and 32 bits, errors up to 21 times the spread
pass, which sums in another order have."""
MOST = 5e-5
"""Share of a tensor in 32 bits that rounding is taken to explain at most, a random walk of 400 units: where float64 is
farther away, a choice has fallen differently."""
USUAL = 1e-5
"""The share up to which sums in another order differ in 32 bits: the usual tolerance."""
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
    """The largest error of an entry that rounding explains; 0 where a tolerance alone decides."""
    along: float = 0.0
    """The largest error along the tensor's own direction that rounding explains, of its norm (`along`); 0 where nothing
    is computed in 16 bits."""


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
    precise = {} if coarse else _in_float64(graph, values)
    entries: dict[int, list[float]] = {tensor: [] for tensor in exact}
    whole: dict[int, list[float]] = {tensor: [] for tensor in exact}
    for seed in range(SAMPLES_16 if coarse else SAMPLES):
        generator = torch.Generator(next(iter(values.values())).device).manual_seed(seed)

        def rounded(operator: Operator, made: torch.Tensor, generator: torch.Generator = generator) -> torch.Tensor:
            if not operator.flops or not _rounds(made) or made.dtype.itemsize < 2:
                return made  # moved, or exact
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
            scale = min(TERMS * median(entries[tensor]) / eps, bound.most)
            terms = max(_largest(value), scale)
            entry = min(SLACK * largest_difference(value, precise.get(tensor, value)), MOST * terms)
            found[tensor] = Rounding(scale=scale, entry=entry if entry > USUAL * terms else 0.0)
    return found


def _in_float64(graph: TrainingGraph, values: Values) -> dict[int, torch.Tensor]:
    """Every tensor of the graph, with what is in 32 bits in 64; empty where an operator does not take that."""

    def doubled(made: torch.Tensor) -> torch.Tensor:
        return made.to(wide(made)) if _rounds(made) else made

    try:
        return evaluate(graph, {t: doubled(value) for t, value in values.items()}, lambda _, made: doubled(made))
    except RuntimeError:  # torch raises this where dtypes do not go together; the tolerance decides then
        return {}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One comparison and its relative error."""

    step: int
    what: str
    """'loss', 'gradient', 'weight' or 'buffer' (one that the forward pass writes), of the run beside one process;
    'module loss', …, of that beside the module. Where operators compute in 16 bits also 'gradient scale': of the whole
    gradient, along its own direction."""
    name: str
    """Name of the parameter or buffer; empty for the loss."""
    relative_error: float
    rounding: float = 0.0
    """The largest relative error that rounding explains, measured; 0 where a tolerance alone decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The comparisons of a run with one process."""

    ranks: int
    steps: int
    tolerance: float
    differences: tuple[Difference, ...]
    written: tuple[str, ...] = ()
    """Buffers that the forward pass of the module writes and a run does not: what they hold is not compared."""

    @property
    def worst(self) -> Difference:
        """The comparison that is the farthest beyond, or the nearest to, what it may be off by; NaN counts as the
        farthest."""
        return max(self.differences, key=lambda d: (d.relative_error != d.relative_error, self._share(d)))

    @property
    def passed(self) -> bool:
        """Whether all errors are within the tolerance, or within what rounding explains."""
        return all(d.relative_error <= self.limit(d) for d in self.differences)

    def limit(self, difference: Difference) -> float:
        """The largest relative error of a comparison that passes."""
        return max(self.tolerance, difference.rounding)

    def _share(self, difference: Difference) -> float:
        limit = self.limit(difference)
        return difference.relative_error / limit if limit else difference.relative_error

    def worst_of(self, what: str) -> float:
        """The largest error of one kind of comparison."""
        return max(d.relative_error for d in self.differences if d.what == what)

    def __repr__(self) -> str:
        # The generated repr of a comparison for each tensor and step would fill a notebook.
        worst, verdict = self.worst, "passed" if self.passed else "FAILED"
        where = worst.what + f" of {worst.name}" * bool(worst.name)
        return (
            f"Verification({verdict}: {len(self.differences)} comparisons of {self.ranks} ranks with one process, "
            f"the largest relative error {worst.relative_error:.1e}, {where})"
        )


class OneProcess:
    """Runs the sequential graph; after each step its weights are set to those of the ranks."""

    def __init__(self, graph: TrainingGraph, state: Values, learning_rate: float, frozen: Collection[str] = ()) -> None:
        """`frozen` are the buffers that the ranks do not write (`Program.frozen`)."""
        self.graph, self.state, self.learning_rate = graph, dict(state), learning_rate
        self.buffers = {
            one.tensor: one.value
            for one in graph.written
            if one.name not in frozen and one.tensor is not None and one.value is not None
        }
        """Buffer that each microbatch writes -> its new value."""
        self.optimizers: dict[int, PieceOptimizer] = {}
        self.roundings: dict[int, Rounding] = {}
        """Of the loss, each gradient and each new value of a buffer, from `measure`."""

    def step(
        self, step: int, microbatches: list[Values], loss: float, recorded: list[dict[str, Any]]
    ) -> Iterator[Difference]:
        """Run one step, and compare it with the records of each rank: every replica and every piece by itself."""
        wanted_loss, expected = self.gradients(microbatches)
        if not math.isfinite(wanted_loss):
            bad = [p.name for p in self.graph.parameters if not self.state[p.tensor].isfinite().all()]
            raise OptionError(
                "The loss is not a number in one process either, so nothing can be compared",
                found=f"{wanted_loss} in step {step}" + f", and no number in {', '.join(bad[:3])}" * bool(bad),
                remedy="Check the weights and the data (tensor.isfinite().all()).",
            )
        first, before = next(iter(with_counts(self.graph, microbatches))), self.roundings
        if not before:
            self.measure(first)
        found = list(self._compared(step, loss, wanted_loss, expected, recorded))
        if before and any(difference.relative_error > max(USUAL, difference.rounding) for difference in found):
            self.measure(first)  # a gradient may be far larger than in the step where rounding was measured
            found = list(self._compared(step, loss, wanted_loss, expected, recorded))
        yield from found
        for buffer in self.buffers:
            self.state[buffer] = _whole(self.state[buffer].shape, _recorded(recorded, "values", buffer))
        for place, parameter in enumerate(self.graph.parameters):
            weights = _recorded(recorded, "values", parameter.tensor)
            updated = self.updated(place, _whole(expected[place].shape, _recorded(recorded, "gradients", place)))
            yield compared(step, "weight", parameter.name, _error(updated, weights), updated)
            self.state[parameter.tensor] = _whole(updated.shape, weights)

    def _compared(
        self,
        step: int,
        loss: float,
        wanted_loss: float,
        expected: Mapping[int, torch.Tensor],
        recorded: Sequence[Mapping[str, Any]],
    ) -> Iterator[Difference]:
        """The differences of the loss, the buffers and the gradients."""
        yield self.loss_compared(step, "loss", loss, wanted_loss)
        for buffer, value in self.buffers.items():
            pieces, wanted, name = (
                _recorded(recorded, "values", buffer),
                self.state[buffer],
                self.graph.tensors[buffer].name,
            )
            yield compared(step, "buffer", name, _error(wanted, pieces), wanted, self.roundings[value])
        for place, wanted in expected.items():
            pieces = _recorded(recorded, "gradients", place)
            made = _whole(wanted.shape, pieces)
            yield from self.gradient_compared(step, "gradient", place, _error(wanted, pieces), made, wanted)

    def gradients(self, microbatches: list[Values]) -> tuple[float, dict[int, torch.Tensor]]:
        """(mean loss, mean gradient of every parameter) of an iteration of these microbatches, in this order: what one
        writes into buffers, the next one reads."""
        loss, sums = 0.0, dict[int, torch.Tensor]()
        for microbatch in with_counts(self.graph, microbatches):
            values = evaluate(self.graph, {**self.state, **microbatch})
            loss += float(values[self.graph.loss]) / len(microbatches)
            for place, parameter in enumerate(self.graph.parameters):
                gradient = values[parameter.gradient]
                sums[place] = sums[place] + gradient if place in sums else gradient
            self.state.update({buffer: values[value] for buffer, value in self.buffers.items()})
        return loss, {place: total / len(microbatches) for place, total in sums.items()}

    def measure(self, microbatch: Values) -> None:
        """Measure `roundings` on a microbatch."""
        self.roundings = rounding_of(self.graph, {**self.state, **microbatch})

    def loss_compared(self, step: int, what: str, made: float, wanted: float) -> Difference:
        """The difference of a loss."""
        rounding = Rounding(entry=self.roundings[self.graph.loss].entry)
        return compared(step, what, "", abs(made - wanted), torch.tensor(wanted, dtype=torch.float64), rounding)

    def gradient_compared(
        self, step: int, what: str, place: int, error: float, made: torch.Tensor, wanted: torch.Tensor
    ) -> Iterator[Difference]:
        """The differences of the gradient of the parameter at `place`, of which one entry has this `error`."""
        parameter = self.graph.parameters[place]
        rounding = self.roundings[parameter.gradient]
        yield compared(step, what, parameter.name, error, wanted, rounding)
        norm = float(torch.linalg.vector_norm(wanted.to(wide(wanted))))
        if rounding.along and norm:
            name, most = f"{what} scale", rounding.along / norm
            off = abs(along(made, wanted)) / norm
            yield Difference(step=step, what=name, name=parameter.name, relative_error=off, rounding=most)

    def updated(self, place: int, gradient: torch.Tensor) -> torch.Tensor:
        """The parameter at `place` after one more step of its optimizer."""
        parameter = self.graph.parameters[place]
        if place not in self.optimizers:
            kind, weight = self.graph.operators[parameter.update].kind, self.state[parameter.tensor]
            self.optimizers[place] = PieceOptimizer(kind, weight, self.learning_rate)
        return self.optimizers[place].step(gradient)


def largest_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference of two entries; infinite where one is not a number."""
    widest = wide(a if a.is_complex() else b)
    error = float((a.to(widest) - b.to(widest)).abs().max()) if a.numel() else 0.0
    return error if error == error else math.inf


def _largest(tensor: torch.Tensor) -> float:
    """The largest size of an entry."""
    return float(tensor.to(wide(tensor)).abs().max()) if tensor.numel() else 0.0


def compared(
    step: int, what: str, name: str, error: float, wanted: torch.Tensor, rounding: Rounding = EXACT
) -> Difference:
    """A difference with an `error` of an entry, relative to the largest entry of `wanted` or to its terms."""
    scale = max(_largest(wanted), rounding.scale)
    relative, most = (error / scale, rounding.entry / scale) if scale else (error, rounding.entry)
    return Difference(step=step, what=what, name=name, relative_error=relative, rounding=most)


def _recorded(recorded: Sequence[Mapping[str, Any]], kind: str, number: int) -> list[tuple[Box, torch.Tensor]]:
    """The pieces of one tensor among the 'gradients' or 'values' of all ranks."""
    return [(box, piece) for of_rank in recorded for of, box, piece in of_rank[kind] if of == number]


def _error(expected: torch.Tensor, pieces: list[tuple[Box, torch.Tensor]]) -> float:
    """The largest difference of any piece from its box; infinite where the pieces do not cover the tensor."""
    covered = torch.zeros(expected.shape, dtype=torch.bool)
    worst = 0.0
    for box, piece in pieces:
        covered[tuple(slice(start, stop) for start, stop in box)] = True
        worst = max(worst, largest_difference(cut(expected, box), piece))
    return worst if bool(covered.all()) else math.inf


def _whole(shape: torch.Size, pieces: list[tuple[Box, torch.Tensor]]) -> torch.Tensor:
    whole = torch.zeros(shape, dtype=pieces[0][1].dtype)
    for box, piece in pieces:
        whole[tuple(slice(start, stop) for start, stop in box)] = piece
    return whole


def check_determined(graph: TrainingGraph) -> None:
    """OptionError for a graph that draws random numbers, which no two executions draw alike."""
    drawing = [o for o in graph.operators if draws(o.kind)]
    if drawing:
        raise OptionError(
            "A model that draws random numbers cannot be compared with one process",
            found=f"{drawing[0].kind} ({drawing[0].name}); {len(drawing)} such operators",
            remedy="Capture it in eval mode (`model.eval()`), or with dropout 0, plan that, and verify that plan.",
        )
