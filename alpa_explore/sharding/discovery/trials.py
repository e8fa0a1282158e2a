"""Trials: the operator on random numbers at small sizes, whole and in shards.

The behaviour of an operator may depend on which sizes are equal, which is larger, and which divides which. A reduction
maps sizes to smaller ones, of tensor extents and integer arguments alike, and keeps all three and small ratios.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import torch

from alpa_explore.graph import Operator, Symbol, Tensor, leaves
from alpa_explore.sharding.discovery import tuning
from alpa_explore.sharding.discovery.shapes import OperatorCall, Placements, UnsupportedOperatorError, short
from alpa_explore.sharding.spec import PARTIAL, REPLICATE, is_floating
from alpa_explore.tracing.aten import run_on_meta, run_operator

_UNBOUNDED = 2**31
"""An argument from this value on means 'to the end' (slice), and is kept."""


def reduced_sizes(operator: Operator, inputs: Collection[Tensor], keep: int, unit: int) -> dict[int, int]:
    """Size -> reduced size, for every extent of the inputs and every integer argument that is a size."""
    extents = {size for tensor in inputs for size in tensor.shape}
    values = {abs(part) for part in leaves(operator.values) if type(part) is int}
    sizes = extents | {n for n in values if tuning.LARGEST_FIXED_ARGUMENT < n < _UNBOUNDED}
    reduced: dict[int, int] = {}
    last = keep
    for size in sorted(sizes):
        if size <= keep:
            reduced[size] = size
            continue
        smaller = [s for s in reduced if s > max(keep, 1)]
        step = math.lcm(unit, *(reduced[s] for s in smaller if size % s == 0))
        small = (last // step + 1) * step
        unrelated = [reduced[s] for s in smaller if size % s]
        for _ in unrelated:  # a heuristic: skip multiples of reduced sizes whose originals do not divide this one
            if any(small % other == 0 for other in unrelated):
                small += step
        # Keep a ratio of 2 or 3 to another size: gates, or query, key and value, stored side by side in one tensor.
        ratio = next(
            (size // s for s in reversed(smaller) if size % s == 0 and size // s <= tuning.LARGEST_RATIO), None
        )
        exact = ratio * reduced[size // ratio] if ratio else 0
        if exact > last and exact % step == 0:
            small = exact
        reduced[size] = last = small
    return reduced


def related_sizes(operator: Operator, inputs: Sequence[Tensor], small: Mapping[int, int]) -> dict[int, int] | None:
    """`small` with sizes changed so that the operator accepts their shapes; None where no such change is found.

    An operator of a backward pass reads what its forward operator read and a gradient of another size, which follows
    from the first by a pad, a window or a stride. So first, a size that is a little larger than another keeps the
    difference; then one size takes every value up to the largest.
    """
    offset: dict[int, int] = {}
    for size in sorted(small):
        near = [s for s in offset if size - tuning.LARGEST_OFFSET <= s < size and size - s < s]
        offset[size] = offset[max(near)] + size - max(near) if near else small[size]
    alone = (
        {**small, size: value} for size in sorted(small, reverse=True) for value in range(1, max(small.values()) + 2)
    )
    tried = itertools.chain((small, offset), alone)
    return next((dict(sizes) for sizes in tried if _runs_on_shapes(operator, inputs, sizes)), None)


@torch.no_grad()
def _runs_on_shapes(operator: Operator, inputs: Sequence[Tensor], small: Mapping[int, int]) -> bool:
    shapes = {place: reduced_tensor(t, small).shape for place, t in enumerate(inputs)}
    try:
        run_on_meta(reduced_operator(operator, small), shapes, {place: t.dtype for place, t in enumerate(inputs)})
    except Exception:  # an operator may reject shapes with any exception class
        return False
    return True


def reduced_tensor(tensor: Tensor, small: Mapping[int, int]) -> Tensor:
    """`tensor` with reduced extents."""
    return replace(tensor, shape=tuple(small.get(size, size) for size in tensor.shape))


def reduced_operator(operator: Operator, small: Mapping[int, int]) -> Operator:
    """`operator` with reduced sizes among its arguments."""

    def reduced(part: object) -> object:
        if type(part) is not int or abs(part) <= tuning.LARGEST_FIXED_ARGUMENT:
            return part
        size = small.get(abs(part), abs(part))
        return size if part > 0 else -size

    return operator.mapped(reduced)


def local_tensors(
    value: torch.Tensor, placement: int, count: int, generator: torch.Generator
) -> Sequence[torch.Tensor]:
    """The local tensors of `count` devices; the addends of a pending sum have different magnitudes."""
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


def joined(placement: int, pieces: Sequence[torch.Tensor], expected: torch.Tensor) -> torch.Tensor:
    """The whole tensor of local ones; of replicas the first that differs from `expected`, if any."""
    if placement >= 0:
        return torch.cat(list(pieces), placement)
    if placement == PARTIAL:
        return sum(pieces[1:], pieces[0])
    # All replicas must equal the whole, so the one that does not is returned for the comparison to fail.
    return next((p for p in pieces if not close(p, expected)), pieces[0])


def close(value: torch.Tensor, expected: torch.Tensor) -> bool:
    """Equal in shape, dtype and, to half of the digits of the dtype, in value; integers and booleans exactly."""
    if (value.shape, value.dtype) != (expected.shape, expected.dtype):
        return False
    if not (expected.is_floating_point() or expected.is_complex()):
        return bool(torch.equal(value, expected))
    tolerance = math.sqrt(torch.finfo(expected.dtype).eps)
    finite = expected[torch.isfinite(expected)]
    size = float(finite.abs().max()) if finite.numel() else 0.0
    return bool(torch.allclose(value, expected, rtol=tolerance, atol=tolerance * (0.1 + size), equal_nan=True))


def is_constant(value: torch.Tensor) -> bool:
    """All elements are equal, so comparing shards of the tensor proves nothing. A tensor of one element does not count:
    it may be a sum, and differs from run to run."""
    flat = value.flatten()
    if flat.numel() < 2:
        return flat.numel() == 0
    return bool((flat == flat[0]).all()) or bool(torch.isnan(flat).all())


STYLES = ("normal", "positive", "ties", "large", "positive", "special")
"""normal: standard normal numbers; positive: 0.1 … 0.9, and integers above 0; ties: few different values, among them
the operator's own float arguments; large: normal numbers times 1000; special, used only while every output is constant:
infinities, NaN and larger integers."""
_TRUE = {"normal": 0.5, "positive": 0.97, "ties": 0.03, "large": 0.5, "special": 0.5}
"""Style -> share of true among booleans."""


def random_tensor(
    style: str, shape: Sequence[int], dtype: str, high: int, numbers: Sequence[float], generator: torch.Generator
) -> torch.Tensor:
    """A random tensor of one of `STYLES`; integers are 0 … high − 1 (1 … high when positive, 0 … high when large,
    −100 … 99 when special)."""
    kind = getattr(torch, dtype)
    if kind is torch.bool:
        return torch.rand(tuple(shape), generator=generator) < _TRUE[style]
    if not (kind.is_floating_point or kind.is_complex):
        if style == "special":
            return torch.randint(-100 if kind.is_signed else 0, 100, tuple(shape), generator=generator).to(kind)
        # Where one value is special to the operator (a class that is ignored), two others are left when large.
        low, high = int(style == "positive"), high + int(style in ("positive", "large"))
        return torch.randint(low, high, tuple(shape), generator=generator).to(kind)
    if style == "ties":
        levels = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, *numbers], dtype=torch.float64)
        return levels[torch.randint(len(levels), tuple(shape), generator=generator)].to(kind)
    if style == "positive":
        return (torch.rand(tuple(shape), generator=generator, dtype=torch.float64) * 0.8 + 0.1).to(kind)
    widest = torch.complex128 if kind.is_complex else torch.float64
    values = torch.randn(tuple(shape), generator=generator, dtype=widest)
    if style == "special":
        specials = torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=widest)
        chosen = specials[torch.randint(3, tuple(shape), generator=generator)]
        values = torch.where(torch.rand(tuple(shape), generator=generator) < 0.3, chosen, values)
    return (values * 1e3 if style == "large" else values).to(kind)


Values = tuple[torch.Tensor, ...]


class _UnsuitedError(Exception):
    """The operator does not run at these sizes; it may run at others."""


class Trial:
    """The operator at one set of sizes: several random inputs, and the outputs of the whole on each."""

    def __init__(self, operator: Operator, tensors: Sequence[Tensor], tied: Sequence[int], dtypes: Sequence[str]):
        self.operator, self.shapes = operator, [t.shape for t in tensors]
        self.runs: list[tuple[Values, Values]] = []
        """(inputs, outputs)."""
        self.indexed = any(d.startswith(("int", "uint")) for d in dtypes)
        # Integers may be indices into any dim: 0, 1 and 2 are legal almost everywhere, and in shards too.
        self.high = 2
        problems: list[str] = []
        # Float arguments may be thresholds, at which the behaviour changes.
        numbers = [part for part in leaves(operator.values) if isinstance(part, float)]
        for seed, style in enumerate(STYLES):
            if style == "special" and not self._is_uninformative():
                break
            generator = torch.Generator().manual_seed(seed)
            given: list[torch.Tensor] = []
            for place, (shape, dtype) in enumerate(zip(self.shapes, dtypes, strict=True)):
                made = random_tensor(style, shape, dtype, self.high, numbers, generator)
                given.append(given[tied[place]] if tied[place] < place else made)
            try:
                self.runs.append((tuple(given), self._whole(tuple(given))))
            except UnsupportedOperatorError:
                raise
            except Exception as error:  # not every function is defined on every input
                problems.append(short(error))
        if len(self.runs) < 2:
            raise _UnsuitedError(problems[0])
        if self._is_uninformative():
            raise UnsupportedOperatorError(
                "its result does not depend on its inputs, so running it on shards proves nothing"
            )

    def _is_uninformative(self) -> bool:
        """True while every output was constant in every run. (One output among several may be: an error code.)"""
        return all(all(map(is_constant, outputs)) for _, outputs in self.runs)

    def _whole(self, given: Values) -> Values:
        kept = [t.clone() for t in given]
        state = torch.get_rng_state()
        first, again = self.run(given), self.run(given)
        if not torch.equal(state, torch.get_rng_state()):
            raise UnsupportedOperatorError("it draws random numbers")
        if not all(torch.allclose(a, b, rtol=0, atol=0, equal_nan=True) for a, b in zip(kept, given, strict=True)):
            raise UnsupportedOperatorError("it writes into its inputs")
        if not all(torch.equal(a, b) or close(a, b) for a, b in zip(first, again, strict=True)):
            raise UnsupportedOperatorError("it gives another result each time")
        return first

    def run(self, given: Values) -> Values:
        """The outputs of the operator on these inputs."""
        return run_operator(self.operator, dict(enumerate(given)))

    def counts_for(self, cuts: Placements) -> list[int]:
        """The numbers of shards that can be tried for these input placements."""
        extents = [s[p] for s, p in zip(self.shapes, cuts, strict=True) if p >= 0]
        if not extents:
            return [3]  # a pending sum of three addends
        return [
            n for n in tuning.SHARD_COUNTS if all(e % n == 0 and (not self.indexed or e // n >= 2) for e in extents)
        ]

    def holds(self, cuts: Sequence[tuple[Placements, Placements, int]]) -> bool | None:
        """True when sharding by each (input placements, output placements, count) in turn reproduces the whole outputs.

        None when a number of shards does not divide an output: the trial then decides nothing.
        """
        compared = 0
        for number, (given, expected) in enumerate(self.runs):
            if any(PARTIAL in inputs for inputs, _, _ in cuts) and not all(torch.isfinite(t).all() for t in expected):
                continue  # an infinity cannot be written as a sum of addends
            compared += 1
            try:
                recombined = self._recombined(given, expected, list(cuts), torch.Generator().manual_seed(100 + number))
            except Exception:  # the shards are not legal inputs; whatever is raised, the split does not hold
                return False
            if recombined is None:
                return None
            if not all(close(a, b) for a, b in zip(recombined, expected, strict=True)):
                return False
        return compared > 1

    def _recombined(
        self,
        given: Values,
        expected: Values,
        cuts: list[tuple[Placements, Placements, int]],
        generator: torch.Generator,
    ) -> Values | None:
        if not cuts:
            return self.run(given)
        (inputs, outputs, count), *rest = cuts
        if any(p >= 0 and w.shape[p] % count for p, w in zip(outputs, expected, strict=True)):
            return None
        parts = [local_tensors(t, p, count, generator) for t, p in zip(given, inputs, strict=True)]
        local_expected = tuple(w.chunk(count, p)[0] if p >= 0 else w for p, w in zip(outputs, expected, strict=True))
        pieces = []
        for i in range(count):
            piece = self._recombined(tuple(part[i] for part in parts), local_expected, rest, generator)
            if piece is None:
                return None
            pieces.append(piece)
        return tuple(joined(p, [piece[o] for piece in pieces], expected[o]) for o, p in enumerate(outputs))


def make_trials(call: OperatorCall) -> list[Trial]:
    """Trials at two sets of reduced sizes, and at the real sizes where those are small; in float64 where it can run so.

    UnsupportedOperatorError, with the last reason, when it runs at fewer.
    """
    problems = ["its sizes cannot be reduced"]
    for widest, most in itertools.product((True, False), tuning.MOST_ELEMENTS):
        trials = _trials_of(call, problems, widest=widest, most=most)
        if trials:
            return trials
    raise UnsupportedOperatorError(f"it could not be run on small inputs: {problems[-1]}")


def _trials_of(call: OperatorCall, problems: list[str], *, widest: bool, most: int) -> list[Trial]:
    """Empty when the operator runs neither at two sets of reduced sizes nor at the real ones; reasons go to
    `problems`."""
    operator = _with_widest(call.operator) if widest else call.operator
    dtypes = [_widest(t.dtype) if widest else t.dtype for t in call.inputs]
    trials: dict[object, Trial] = {}

    def attempt(small: dict[int, int], most: int) -> None:
        tensors = [reduced_tensor(t, small) for t in call.inputs]
        reduced = reduced_operator(operator, small)
        key = (tuple(t.shape for t in tensors), reduced.arguments, reduced.keywords)
        if key in trials or sum(t.elements for t in tensors) > most:
            return
        try:
            trial = Trial(reduced, tensors, _tied(call), dtypes)
        except _UnsuitedError as error:
            problems.append(str(error))
            return
        ranks = [len(t.shape) for t in call.outputs]
        if any([t.dim() for t in outputs] != ranks for _, outputs in trial.runs):
            problems.append("the ranks of its outputs change with its sizes")
            return
        trials[key] = trial

    attempt({}, tuning.FULL_SIZE_ELEMENTS)
    enough = len(trials) + 2
    for keep, unit in tuning.REDUCTIONS:
        if len(trials) < enough:
            attempt(reduced_sizes(operator, call.inputs, keep, unit), most)
    for keep, unit in tuning.REDUCTIONS:
        if len(trials) < enough:
            related = related_sizes(operator, call.inputs, reduced_sizes(operator, call.inputs, keep, unit))
            if related is not None:
                attempt(related, most)
    if enough == 2 and len(trials) == 1:
        problems.append("it runs at one set of reduced sizes only, which is not enough evidence")
        return []
    return list(trials.values())


def _tied(call: OperatorCall) -> list[int]:
    """For each input the first input position that reads the same tensor."""
    first: dict[int, int] = {}
    return [first.setdefault(t.index, place) for place, t in enumerate(call.inputs)]


def _with_widest(operator: Operator) -> Operator:
    """`operator` with float64 wherever its arguments name a floating dtype, so that rounding hides no difference."""

    def wide(part: object) -> object:
        return Symbol("dtype", _widest(part.value)) if isinstance(part, Symbol) and part.kind == "dtype" else part

    return operator.mapped(wide)


def _widest(dtype: str) -> str:
    if dtype.startswith("complex"):
        return "complex128"
    return "float64" if is_floating(dtype) else dtype
