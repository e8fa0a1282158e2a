"""Candidates of splits, and their shapes at full size: the operator runs on tensors without memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from alpa_explore.graph import Tensor
from alpa_explore.sharding.discovery.question import Placements, Question, RefusalError, is_floating, short
from alpa_explore.sharding.spec import PARTIAL, REPLICATE
from alpa_explore.tracing.aten import overload, run_operator

_MOST_CANDIDATES = 600


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way of cutting the inputs whose shapes fit."""

    inputs: Placements
    dims: Placements
    """For each output the dim that the cut divides, REPLICATE where its shape does not change."""
    size: int
    """What the number of pieces must divide."""
    spare: bool = False
    """A pending sum of one input alone: of use only where none of all inputs passes."""


@torch.no_grad()
def candidates(question: Question) -> tuple[Candidate, ...]:
    """All candidates. RefusalError when the operator does not give the graph's shapes."""
    shapes = ShapeRun(question)
    found = []
    for inputs in cuts(question.inputs):
        sizes = [t.shape[p] for t, p in zip(question.inputs, inputs, strict=True) if p >= 0]
        count = next((n for n in (2, 3, 5, 7) if sizes[0] % n == 0), 0)
        dims = shapes.cut_dims(inputs, count) if count else None
        if dims is None:
            continue
        sizes += [t.shape[d] for t, d in zip(question.outputs, dims, strict=True) if d >= 0]
        size = shapes.divisible(inputs, dims, math.gcd(*sizes))
        if size > 1:
            found.append(Candidate(inputs, dims, size))
    if all(is_floating(t.dtype) for t in question.outputs):
        whole = (REPLICATE,) * len(question.outputs)
        found += [Candidate(inputs, whole, 1, spare=n > 0) for n, inputs in enumerate(sums(question.inputs))]
    found.sort(key=lambda c: -sum(p >= 0 for p in c.inputs))  # what cuts more inputs leaves less on each device
    return tuple(found)


def cuts(inputs: Sequence[Tensor]) -> Iterator[Placements]:
    """Every choice of one dim, or none, of each input, where the chosen dims have equal extents."""
    for size in sorted({s for t in inputs for s in t.shape if s > 1}):
        options = [[REPLICATE, *(d for d, s in enumerate(t.shape) if s == size)] for t in inputs]
        if math.prod(map(len, options)) <= _MOST_CANDIDATES:
            every: Iterator[Placements] = iter(itertools.product(*options))
        else:  # aligned dims alone, counted from the front or from the back
            every = _aligned(inputs, size)
        yield from (c for c in every if any(p >= 0 for p in c))


def _aligned(inputs: Sequence[Tensor], size: int) -> Iterator[Placements]:
    rank = max(len(t.shape) for t in inputs)
    seen = set()
    for dim, back in itertools.product(range(rank), (False, True)):
        here = [len(t.shape) - rank + dim if back else dim for t in inputs]
        placements = tuple(
            d if 0 <= d < len(t.shape) and t.shape[d] == size else REPLICATE for d, t in zip(here, inputs, strict=True)
        )
        if placements not in seen:
            seen.add(placements)
            yield placements


def sums(inputs: Sequence[Tensor]) -> Iterator[Placements]:
    """Pending sums that may pass through: of all floating inputs; else of one, where the others are single elements."""
    floating = [i for i, t in enumerate(inputs) if is_floating(t.dtype)]
    if not floating:
        return
    yield tuple(PARTIAL if i in floating else REPLICATE for i in range(len(inputs)))
    for place in floating if len(floating) > 1 else ():
        if all(inputs[i].elements == 1 for i in floating if i != place):
            yield tuple(PARTIAL if i == place else REPLICATE for i in range(len(inputs)))


class ShapeRun:
    """The operator on tensors without memory, of its real shapes and dtypes."""

    def __init__(self, question: Question) -> None:
        self._operator, self._inputs = question.operator, question.inputs
        self.whole = [t.shape for t in question.outputs]
        found = self._shapes([t.shape for t in question.inputs])
        if isinstance(found, str):
            if torch.Tag.dynamic_output_shape in overload(question.operator.kind).tags:
                raise RefusalError("the shape of its output depends on values")
            raise RefusalError(f"it cannot be run on shapes alone: {found}")
        if found != self.whole:
            raise RefusalError(f"it does not return the shapes of the graph: {found}, not {self.whole}")

    def outputs(self, cuts: Sequence[tuple[Placements, int]]) -> list[tuple[int, ...]] | None:
        """Shapes of the outputs when the inputs are cut as (placements, pieces) say; None where that cannot run."""
        shapes = [list(t.shape) for t in self._inputs]
        for placements, count in cuts:
            for shape, placement in zip(shapes, placements, strict=True):
                if placement >= 0:
                    if shape[placement] % count:
                        return None
                    shape[placement] //= count
        found = self._shapes([tuple(s) for s in shapes])
        return None if isinstance(found, str) else found

    def _shapes(self, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]] | str:
        """Shapes of the outputs, or why there are none."""
        try:
            given = {
                i: torch.empty(shape, dtype=getattr(torch, tensor.dtype), device="meta")
                for i, (shape, tensor) in enumerate(zip(shapes, self._inputs, strict=True))
            }
            return [tuple(t.shape) for t in run_operator(self._operator, given, "meta")]
        except Exception as error:  # an illegal cut is refused by raising, with any class
            return short(error)

    def cut_dims(self, inputs: Placements, count: int) -> Placements | None:
        """For each output the dim that is `count` times smaller, -1 if it has its full size; None: neither."""
        found = self.outputs([(inputs, count)])
        if found is None or len(found) != len(self.whole):
            return None
        dims = []
        for whole, part in zip(self.whole, found, strict=True):
            if len(whole) != len(part):
                return None
            changed = [d for d, (a, b) in enumerate(zip(whole, part, strict=True)) if a != b]
            if len(changed) > 1 or any(whole[d] != part[d] * count for d in changed):
                return None
            dims.append(changed[0] if changed else REPLICATE)
        return tuple(dims)

    def divisible(self, inputs: Placements, dims: Placements, size: int) -> int:
        """The largest divisor of `size` up to which halving goes on working, with all arguments as they are."""
        count = 2
        while size % count == 0:
            if self.cut_dims(inputs, count) != dims:
                return count // 2
            count *= 2
        return size
