"""Values at small sizes: the operator runs on real numbers, whole and in pieces."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import torch

from alpa_explore.graph import Argument, Operator, Symbol, Tensor
from alpa_explore.sharding.discovery.question import Placements, Question, RefusalError, short
from alpa_explore.sharding.discovery.small_sizes import SHRINKINGS, shrinking, shrunk_operator, shrunk_tensor
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.tracing.aten import run_operator

Values = tuple[torch.Tensor, ...]

_PIECES = (2, 3, 4)
_MOST_ELEMENTS = (1 << 16, 1 << 18, 1 << 20)
"""Of the inputs of a small run together: wanted, and allowed where nothing smaller runs."""
_REAL_ELEMENTS = 1 << 15
"""Up to here the operator is also run at its full size."""
_STYLES = ("normal", "positive", "ties", "large", "positive", "special")
"""Of random inputs: normal numbers; 0.1 … 0.9, and integers that are not 0; few different values, the operator's own
among them; normal numbers times 1000; and, where those all give the same, infinities, NaN and larger integers."""
_TRUE = {"normal": 0.5, "positive": 0.97, "ties": 0.03, "large": 0.5, "special": 0.5}
"""Share of true among booleans."""
_TOLERANCE = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float32: 1e-4, torch.complex64: 1e-4}


class _UnsuitedError(Exception):
    """The operator does not run at these sizes; at others it may."""


class Trial:
    """The operator at one set of sizes: several random inputs, and the outputs of the whole on each."""

    def __init__(self, operator: Operator, tensors: Sequence[Tensor], tied: Sequence[int], dtypes: Sequence[str]):
        self.operator, self.shapes = operator, [t.shape for t in tensors]
        self.runs: list[tuple[Values, Values]] = []
        """(inputs, outputs)."""
        self.indexed = any(d.startswith(("int", "uint")) for d in dtypes)
        # Integers may be indices into any dim: 0, 1 and 2 are legal nearly everywhere, in pieces too.
        self.high = 2
        problems: list[str] = []
        numbers = _numbers(operator)
        for seed, style in enumerate(_STYLES):
            if style == "special" and not self._says_nothing():
                break
            generator = torch.Generator().manual_seed(seed)
            given: list[torch.Tensor] = []
            for place, (shape, dtype) in enumerate(zip(self.shapes, dtypes, strict=True)):
                made = _random(style, shape, dtype, self.high, numbers, generator)
                given.append(given[tied[place]] if tied[place] < place else made)
            try:
                self.runs.append((tuple(given), self._whole(tuple(given))))
            except RefusalError:
                raise
            except Exception as error:  # not every function is defined on every input
                problems.append(short(error))
        if len(self.runs) < 2:
            raise _UnsuitedError(problems[0])
        if self._says_nothing():
            raise RefusalError("its result is the same whatever it is given, so pieces show nothing")

    def _says_nothing(self) -> bool:
        """True while every output had one value everywhere, in every run. (One beside others may: an error code.)"""
        return all(all(map(_is_constant, outputs)) for _, outputs in self.runs)

    def _whole(self, given: Values) -> Values:
        kept = [t.clone() for t in given]
        state = torch.get_rng_state()
        first, again = self.run(given), self.run(given)
        if not torch.equal(state, torch.get_rng_state()):
            raise RefusalError("it draws random numbers")
        if not all(_same(a, b) for a, b in zip(kept, given, strict=True)):
            raise RefusalError("it writes into its inputs")
        if not all(torch.equal(a, b) or _close(a, b) for a, b in zip(first, again, strict=True)):
            raise RefusalError("it gives another result each time")
        return first

    def run(self, given: Values) -> Values:
        """The operator on its inputs."""
        return run_operator(self.operator, dict(enumerate(given)))

    def counts_for(self, cuts: Placements) -> list[int]:
        """The numbers of pieces that can be tried."""
        extents = [s[p] for s, p in zip(self.shapes, cuts, strict=True) if p >= 0]
        if not extents:
            return [3]  # addends of a pending sum
        return [n for n in _PIECES if all(e % n == 0 and (not self.indexed or e // n >= 2) for e in extents)]

    def holds(self, cuts: Sequence[tuple[Placements, Placements, int]]) -> bool | None:
        """True when the pieces under (inputs, outputs, count), cut one after the other, give the whole.

        None when a number of pieces does not divide an output: nothing is known then.
        """
        judged = 0
        for number, (given, wanted) in enumerate(self.runs):
            if any(PARTIAL in inputs for inputs, _, _ in cuts) and not all(map(_is_finite, wanted)):
                continue  # infinities have no addends
            judged += 1
            try:
                made = self._recombined(given, wanted, list(cuts), torch.Generator().manual_seed(100 + number))
            except Exception:  # the pieces are not legal inputs: whatever is raised, the split does not hold
                return False
            if made is None:
                return None
            if not all(_close(a, b) for a, b in zip(made, wanted, strict=True)):
                return False
        return judged > 1

    def _recombined(
        self, given: Values, wanted: Values, cuts: list[tuple[Placements, Placements, int]], generator: torch.Generator
    ) -> Values | None:
        if not cuts:
            return self.run(given)
        (inputs, outputs, count), *rest = cuts
        if any(p >= 0 and w.shape[p] % count for p, w in zip(outputs, wanted, strict=True)):
            return None
        parts = [_parts(t, p, count, generator) for t, p in zip(given, inputs, strict=True)]
        goals = tuple(w.chunk(count, p)[0] if p >= 0 else w for p, w in zip(outputs, wanted, strict=True))
        pieces = []
        for i in range(count):
            piece = self._recombined(tuple(part[i] for part in parts), goals, rest, generator)
            if piece is None:
                return None
            pieces.append(piece)
        return tuple(_joined(p, [piece[o] for piece in pieces], wanted[o]) for o, p in enumerate(outputs))


def make_trials(question: Question) -> list[Trial]:
    """The operator at two small sets of sizes, and at its real ones where those are small; in float64 if it can."""
    problems = ["its sizes cannot be shrunk"]
    for widest, most in itertools.product((True, False), _MOST_ELEMENTS):
        found = _trials_of(question, problems, widest=widest, most=most)
        if found:
            return found
    raise RefusalError(f"it could not be run on small inputs: {problems[-1]}")


def _trials_of(question: Question, problems: list[str], *, widest: bool, most: int) -> list[Trial]:
    """Empty when neither two shrinkings nor the real sizes suit; `problems` is told why."""
    operator = _with_widest(question.operator) if widest else question.operator
    dtypes = [_widest(t.dtype) if widest else t.dtype for t in question.inputs]
    found: dict[object, Trial] = {}

    def attempt(small: dict[int, int], most: int) -> None:
        tensors = [shrunk_tensor(t, small) for t in question.inputs]
        at = shrunk_operator(operator, small)
        key = (tuple(t.shape for t in tensors), at.arguments, at.keywords)
        if key in found or sum(t.elements for t in tensors) > most:
            return
        try:
            trial = Trial(at, tensors, _tied(question), dtypes)
        except _UnsuitedError as error:
            problems.append(str(error))
            return
        ranks = [len(t.shape) for t in question.outputs]
        if any([t.dim() for t in outputs] != ranks for _, outputs in trial.runs):
            problems.append("it returns tensors of other ranks at other sizes")
            return
        found[key] = trial

    attempt({}, _REAL_ELEMENTS)
    enough = len(found) + 2
    for keep, unit in SHRINKINGS:
        if len(found) < enough:
            attempt(shrinking(operator, question.inputs, keep, unit), most)
    if enough == 2 and len(found) == 1:
        problems.append("it runs at one set of small sizes only, which may be chance")
        return []
    return list(found.values())


def _tied(question: Question) -> list[int]:
    """For each input the first place that reads the same tensor."""
    first: dict[int, int] = {}
    return [first.setdefault(t.index, place) for place, t in enumerate(question.inputs)]


def _with_widest(operator: Operator) -> Operator:
    """`operator` with float64 wherever its arguments name a floating dtype: rounding must not hide a difference."""

    def wide(argument: Argument) -> Argument:
        if isinstance(argument, tuple):
            return tuple(wide(a) for a in argument)
        if isinstance(argument, Symbol) and argument.kind == "dtype":
            return Symbol("dtype", _widest(argument.value))
        return argument

    return replace(
        operator,
        arguments=tuple(wide(a) for a in operator.arguments),
        keywords=tuple((name, wide(a)) for name, a in operator.keywords),
    )


def _widest(dtype: str) -> str:
    if dtype.startswith("complex"):
        return "complex128"
    return "float64" if dtype.startswith(("float", "bfloat")) else dtype


def _random(
    style: str, shape: Sequence[int], dtype: str, high: int, numbers: Sequence[float], generator: torch.Generator
) -> torch.Tensor:
    kind = getattr(torch, dtype)
    if kind is torch.bool:
        return torch.rand(tuple(shape), generator=generator) < _TRUE[style]
    if not (kind.is_floating_point or kind.is_complex):
        if style == "special":
            return torch.randint(-100 if kind.is_signed else 0, 100, tuple(shape), generator=generator).to(kind)
        low = int(style == "positive")
        return torch.randint(low, high + low, tuple(shape), generator=generator).to(kind)
    if style == "ties":
        levels = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, *numbers], dtype=torch.float64)
        return levels[torch.randint(len(levels), tuple(shape), generator=generator)].to(kind)
    if style == "positive":
        return (torch.rand(tuple(shape), generator=generator, dtype=torch.float64) * 0.8 + 0.1).to(kind)
    wide = torch.complex128 if kind.is_complex else torch.float64
    made = torch.randn(tuple(shape), generator=generator, dtype=wide)
    if style == "special":
        odd = torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=wide)
        chosen = odd[torch.randint(3, tuple(shape), generator=generator)]
        made = torch.where(torch.rand(tuple(shape), generator=generator) < 0.3, chosen, made)
    return (made * 1e3 if style == "large" else made).to(kind)


def _numbers(argument: Operator | Argument) -> list[float]:
    """The numbers among the arguments of an operator: thresholds, where something may happen."""
    if isinstance(argument, Operator):
        return [n for a in (*argument.arguments, *(v for _, v in argument.keywords)) for n in _numbers(a)]
    if isinstance(argument, tuple):
        return [n for a in argument for n in _numbers(a)]
    return [argument] if isinstance(argument, float) else []


def _parts(value: torch.Tensor, placement: int, count: int, generator: torch.Generator) -> Sequence[torch.Tensor]:
    """The local tensors of `count` devices; the addends of a pending sum are of several magnitudes."""
    if placement == REPLICATE:
        return [value] * count
    if placement == PARTIAL:
        scale = value.abs().mean() + 1.0
        addends = [
            torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value.dtype) * scale * 10.0**i
            for i in range(count - 1)
        ]
        return [*addends, value - sum(addends[1:], addends[0])]
    return [part.contiguous() for part in value.chunk(count, placement)]


def _joined(placement: int, pieces: Sequence[torch.Tensor], wanted: torch.Tensor) -> torch.Tensor:
    if placement >= 0:
        return torch.cat(list(pieces), placement)
    if placement == PARTIAL:
        return sum(pieces[1:], pieces[0])
    # Replicas: all must be the whole, so a piece that is not is the one to show.
    return next((p for p in pieces if not _close(p, wanted)), pieces[0])


def _close(value: torch.Tensor, wanted: torch.Tensor) -> bool:
    if (value.shape, value.dtype) != (wanted.shape, wanted.dtype):
        return False
    if not (wanted.is_floating_point() or wanted.is_complex()):
        return bool(torch.equal(value, wanted))
    tolerance = _TOLERANCE.get(wanted.dtype, 2e-2)
    finite = wanted[torch.isfinite(wanted)]
    size = float(finite.abs().max()) if finite.numel() else 0.0
    return bool(torch.allclose(value, wanted, rtol=tolerance, atol=tolerance * (0.1 + size), equal_nan=True))


def _same(value: torch.Tensor, wanted: torch.Tensor) -> bool:
    return bool(torch.allclose(value, wanted, rtol=0, atol=0, equal_nan=True))


def _is_finite(value: torch.Tensor) -> bool:
    return bool(torch.isfinite(value).all())


def _is_constant(value: torch.Tensor) -> bool:
    """All elements alike: pieces of such a tensor say nothing. A single element may be a sum, and differs by run."""
    flat = value.flatten()
    if flat.numel() < 2:
        return flat.numel() == 0
    return bool((flat == flat[0]).all()) or bool(torch.isnan(flat).all())
