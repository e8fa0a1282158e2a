"""Candidate splits, filtered by the output shapes that the operator produces at full size on meta tensors."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from alpa_explore.graph import Operator, Tensor
from alpa_explore.sharding.discovery import tuning
from alpa_explore.sharding.spec import PARTIAL, REPLICATE, is_floating
from alpa_explore.tracing.aten import run_on_meta
from alpa_explore.tracing.symbols import overload

Placements: TypeAlias = tuple[int, ...]
"""For each input, or each output: the dim that is sharded, REPLICATE or PARTIAL."""


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An operator on tensors of given shapes and dtypes."""

    operator: Operator
    """Its Refs are input positions: two positions that read one tensor may hold different shards of it."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class UnsupportedOperatorError(Exception):
    """The operator cannot be tested; the message is the reason."""


def short(error: Exception) -> str:
    """The class and the first line of an error, at most 120 characters of it."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sharding of the inputs whose output shapes are those of shards."""

    inputs: Placements
    dims: Placements
    """For each output the dim that becomes smaller, REPLICATE where its shape does not change."""
    size: int
    """The number of shards must divide this."""
    spare: bool = False
    """A pending sum of one input alone; needed only where a pending sum of all inputs is not valid."""


@torch.no_grad()
def candidates(call: OperatorCall) -> tuple[Candidate, ...]:
    """All candidates. UnsupportedOperatorError when the operator does not return the shapes of the graph."""
    shapes = ShapeRun(call)
    proposed = []
    for inputs in cuts(call.inputs):
        sizes = [t.shape[p] for t, p in zip(call.inputs, inputs, strict=True) if p >= 0]
        count = next((n for n in (2, 3, 5, 7) if sizes[0] % n == 0), 0)
        dims = shapes.cut_dims(inputs, count) if count else None
        if dims is None:
            continue
        sizes += [t.shape[d] for t, d in zip(call.outputs, dims, strict=True) if d >= 0]
        size = shapes.divisible(inputs, dims, math.gcd(*sizes))
        if size > 1:
            proposed.append(Candidate(inputs, dims, size))
    if all(is_floating(t.dtype) for t in call.outputs):
        whole = (REPLICATE,) * len(call.outputs)
        proposed += [Candidate(inputs, whole, 1, spare=n > 0) for n, inputs in enumerate(sums(call.inputs))]
    proposed.sort(key=lambda c: -sum(p >= 0 for p in c.inputs))  # sharding more inputs leaves less on each device
    return tuple(proposed)


def cuts(inputs: Sequence[Tensor]) -> Iterator[Placements]:
    """Every choice of one dim, or none, of each input, where the chosen dims have equal extents."""
    for size in sorted({s for t in inputs for s in t.shape if s > 1}):
        options = [[REPLICATE, *(d for d, s in enumerate(t.shape) if s == size)] for t in inputs]
        if math.prod(map(len, options)) <= tuning.MOST_CANDIDATES:
            every: Iterator[Placements] = iter(itertools.product(*options))
        else:  # only dims at the same position, counted from the front or from the back
            every = _aligned(inputs, size)
        yield from (c for c in every if any(p >= 0 for p in c))


def _aligned(inputs: Sequence[Tensor], size: int) -> Iterator[Placements]:
    rank = max(len(t.shape) for t in inputs)
    seen = set()
    for dim, back in itertools.product(range(rank), (False, True)):
        dims = [len(t.shape) - rank + dim if back else dim for t in inputs]
        placements = tuple(
            d if 0 <= d < len(t.shape) and t.shape[d] == size else REPLICATE for d, t in zip(dims, inputs, strict=True)
        )
        if placements not in seen:
            seen.add(placements)
            yield placements


def sums(inputs: Sequence[Tensor]) -> Iterator[Placements]:
    """Pending sums that may pass through: of all floating inputs; or of one where each of the others is a single
    element."""
    floating = [i for i, t in enumerate(inputs) if is_floating(t.dtype)]
    if not floating:
        return
    yield tuple(PARTIAL if i in floating else REPLICATE for i in range(len(inputs)))
    for place in floating if len(floating) > 1 else ():
        if all(inputs[i].elements == 1 for i in floating if i != place):
            yield tuple(PARTIAL if i == place else REPLICATE for i in range(len(inputs)))


class ShapeRun:
    """The operator on meta tensors of its real shapes and dtypes."""

    def __init__(self, call: OperatorCall) -> None:
        self._operator, self._inputs = call.operator, call.inputs
        self.whole = [t.shape for t in call.outputs]
        shapes = self._shapes([t.shape for t in call.inputs])
        if isinstance(shapes, str):
            if torch.Tag.dynamic_output_shape in overload(call.operator.kind).tags:
                raise UnsupportedOperatorError("the shape of its output depends on values")
            raise UnsupportedOperatorError(f"it cannot be run on shapes alone: {shapes}")
        if shapes != self.whole:
            raise UnsupportedOperatorError(f"it does not return the shapes of the graph: {shapes}, not {self.whole}")

    def outputs(self, cuts: Sequence[tuple[Placements, int]]) -> list[tuple[int, ...]] | None:
        """Shapes of the outputs when the inputs are sharded by each of (placements, number of shards); None if that
        fails."""
        shapes = [list(t.shape) for t in self._inputs]
        for placements, count in cuts:
            for shape, placement in zip(shapes, placements, strict=True):
                if placement >= 0:
                    if shape[placement] % count:
                        return None
                    shape[placement] //= count
        result = self._shapes([tuple(s) for s in shapes])
        return None if isinstance(result, str) else result

    def _shapes(self, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]] | str:
        """Shapes of the outputs, or the error message."""
        dtypes = {i: t.dtype for i, t in enumerate(self._inputs)}
        try:
            return [tuple(t.shape) for t in run_on_meta(self._operator, dict(enumerate(shapes)), dtypes)[1]]
        except Exception as error:  # an operator may reject illegal shards with any exception class
            return short(error)

    def cut_dims(self, inputs: Placements, count: int) -> Placements | None:
        """For each output the dim that is `count` times smaller, -1 if it has its full size; None if an output is
        neither."""
        shapes = self.outputs([(inputs, count)])
        if shapes is None or len(shapes) != len(self.whole):
            return None
        dims = []
        for whole, local in zip(self.whole, shapes, strict=True):
            if len(whole) != len(local):
                return None
            changed = [d for d, (a, b) in enumerate(zip(whole, local, strict=True)) if a != b]
            if len(changed) > 1 or any(whole[d] != local[d] * count for d in changed):
                return None
            dims.append(changed[0] if changed else REPLICATE)
        return tuple(dims)

    def divisible(self, inputs: Placements, dims: Placements, size: int) -> int:
        """The extent that the number of shards must divide, with all arguments unchanged: `size` when every power of
        two that divides it works as a number of shards, else the largest one up to which they all work."""
        count = 2
        while size % count == 0:
            if self.cut_dims(inputs, count) != dims:
                return count // 2
            count *= 2
        return size
