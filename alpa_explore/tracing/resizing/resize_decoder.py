"""The graph of a decoder with other samples, positions and words, from captures that differ in one of these each.

A size that differs in one of them is affine in that one. A size that differs with samples and with positions is taken
to be a · samples · positions + b, and must then agree with both captures. What is checked of the result, and when it is
not a capture at these sizes, is said in `rescale`. The captures must have one structure, so that whatever torch does
with sizes of 1 would show.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from alpa_explore.errors import BatchError
from alpa_explore.graph import TrainingGraph
from alpa_explore.tracing.resizing.rescale import resized


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSize:
    """What decides on the sizes in a decoder's graph."""

    samples: int
    positions: int
    words: int
    """Of the vocabulary."""


def resize_decoder(captures: Mapping[DecoderSize, TrainingGraph], size: DecoderSize) -> TrainingGraph:
    """The graph at `size`. The first of `captures` is the base; each other one differs from it in samples, positions or
    words. BatchError where they do not determine it."""
    if size in captures:
        return captures[size]
    return resized(list(captures.values()), _Rule(list(captures), size), size.samples)


class _Rule:
    """Sizes at `size` from those of the captures, the base first."""

    def __init__(self, captured: list[DecoderSize], size: DecoderSize) -> None:
        self.captured, self.size = captured, size
        base = captured[0]
        self.axes = [
            next(axis for axis in ("samples", "positions", "words") if getattr(other, axis) != getattr(base, axis))
            for other in captured[1:]
        ]
        for axis in ("samples", "positions", "words"):
            if getattr(size, axis) != getattr(base, axis) and axis not in self.axes:
                raise self.error(f"no capture has other {axis}")

    def at(self, sizes: tuple[int, ...], where: str) -> int:
        base, first = self.captured[0], sizes[0]
        slopes = {
            axis: Fraction(value - first, getattr(other, axis) - getattr(base, axis))
            for axis, other, value in zip(self.axes, self.captured[1:], sizes[1:], strict=True)
            if value != first
        }
        if len(slopes) == 2 and "words" not in slopes:
            each = slopes["samples"] / base.positions
            if each != slopes["positions"] / base.samples:
                raise self.error(f"{where} is no product of samples and positions: {', '.join(map(str, sizes))}")
            grown = each * (self.size.samples * self.size.positions - base.samples * base.positions)
        elif len(slopes) > 1:
            raise self.error(f"{where} grows with {' and '.join(slopes)}: {', '.join(map(str, sizes))}")
        else:
            grown = sum(
                ((getattr(self.size, axis) - getattr(base, axis)) * slope for axis, slope in slopes.items()), Fraction()
            )
        value = first + grown
        if value.denominator != 1 or value < 1:
            raise self.error(f"{where} would be {float(value):g}")
        return int(value)

    def error(self, reason: str) -> BatchError:
        return BatchError(
            f"The graph at {self.size} does not follow from its captures",
            found=reason,
            remedy="Capture the model at these sizes.",
        )
