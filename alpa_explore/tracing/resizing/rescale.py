"""A training graph at another batch size n, from captures at two other sizes p < q.

Every size among shapes and arguments is taken to be affine in the batch size, a·n + b with a = (size_q − size_p) /
(q − p). The result is then checked: every operator whose sizes change runs on meta tensors with torch's own shape
functions and must return the assumed shapes. FLOPs and bytes are counted anew, so they need not be affine.

The result equals a capture at n unless:

- the two captures differ in anything but sizes (other operators, other constants, other dtypes);
- a size would not be an integer, or not positive;
- a size that varies with the batch would be 1, which torch and models treat specially (broadcasting, squeezing);
- a view or an expand would change nothing at n but something at p, or the reverse: capture folds those away;
- an operator rejects its arguments or returns another shape: a size is not affine;
- the model's code branches on the batch size and behaves differently at n. Captures at other sizes cannot show this, so
  `batches` compares one rescaled graph with a capture.

In all but the last case BatchError names the case.

A decoder is also given other positions and words (`resize_decoder`), from captures that differ in one of these each. A
size that differs in one of them is affine in that one. A size that differs with samples and with positions is taken to
be a · samples · positions + b, and must then agree with both captures. The captures must have one structure, so that
whatever torch does with sizes of 1 would show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

import torch

from alpa_explore.errors import BatchError
from alpa_explore.graph import Argument, Operator, Ref, Tensor, TrainingGraph, counts, verify
from alpa_explore.graph.loops import SCAN, body_between
from alpa_explore.graph.operator import operator_signature
from alpa_explore.tracing.aten import operator_flops, run_operator
from alpa_explore.tracing.operators.drafts import SAME_IF_SAME_SHAPE
from alpa_explore.tracing.symbols import to_torch


def rescale(low: TrainingGraph, high: TrainingGraph, samples: int) -> TrainingGraph:
    """The graph of a microbatch of `samples`, from those of `low.samples` and `high.samples` of the same model.

    BatchError, naming the operator or tensor, when the two do not determine it.
    """
    assert 0 < low.samples < high.samples, "two captures at different sizes, the smaller one first"
    if samples in (low.samples, high.samples):
        return low if samples == low.samples else high
    return resized((low, high), _Line(low.samples, high.samples, samples), samples)


OPTIMIZER = "optimizer."
"""How the kinds of update operators begin (`tracing.optimizers`)."""


class SizeRule(Protocol):
    """How a size follows from those of some captures."""

    def at(self, sizes: tuple[int, ...], where: str) -> int:
        """The size, from that of each capture. BatchError where it does not follow."""

    def error(self, reason: str) -> BatchError:
        """Why the graph does not follow from the captures."""


def resized(captures: Sequence[TrainingGraph], rule: SizeRule, samples: int) -> TrainingGraph:
    """The graph whose every size follows by `rule` from those of `captures`, which differ in sizes alone."""
    first = captures[0]
    for other in captures[1:]:
        _check_structure(first, other)
    tensors = tuple(_tensor(rule, alike) for alike in zip(*(graph.tensors for graph in captures), strict=True))
    moved = {t.index for t, a in zip(tensors, first.tensors, strict=True) if t.shape != a.shape}
    counter = _Counter(tensors)
    operators = []
    for alike in zip(*(graph.operators for graph in captures), strict=True):
        a = alike[0]
        same = all(o.arguments == a.arguments and o.keywords == a.keywords for o in alike)
        if same and moved.isdisjoint((*a.inputs, *a.outputs)):
            operators.append(a)
            continue
        keywords = zip(*(o.keywords for o in alike), strict=True)
        operator = replace(
            a,
            arguments=tuple(_argument(rule, x, a) for x in zip(*(o.arguments for o in alike), strict=True)),
            keywords=tuple((same[0][0], _argument(rule, tuple(x for _, x in same), a)) for same in keywords),
        )
        if a.kind in SAME_IF_SAME_SHAPE:
            kept = [t[a.inputs[0]].shape == t[a.outputs[0]].shape for t in (first.tensors, tensors)]
            if kept[0] != kept[1]:
                raise rule.error(f"{a.name} ({a.kind}) would change nothing, or no longer do so")
        if a.kind.startswith(OPTIMIZER):  # keeps state between steps, and costs the same for every element
            old, new = first.tensors[a.outputs[0]].elements, tensors[a.outputs[0]].elements
            flops, size = a.flops * new // old, a.bytes_accessed * new // old
        else:
            flops, size = counter(operator, rule)
        operators.append(replace(operator, flops=flops, bytes_accessed=size))
    graph = replace(
        first,
        tensors=tensors,
        operators=tuple(operators),
        samples=samples,
        tokens=rule.at(tuple(graph.tokens for graph in captures), "the number of tokens"),
    )
    return verify(graph)


@dataclass(frozen=True, slots=True)
class _Line:
    """Affine extrapolation of sizes at batch sizes `low` and `high` to batch size `samples`."""

    low: int
    high: int
    samples: int

    def at(self, sizes: tuple[int, ...], where: str) -> int:
        a, b = sizes
        if a == b:
            return a
        value = a + Fraction(b - a, self.high - self.low) * (self.samples - self.low)
        if value.denominator != 1 or value < 1:
            raise self.error(f"{where} is {a} and {b} there, and would be {float(value):g}")
        if value == 1:
            raise self.error(f"{where} would be 1, which torch treats specially")
        return int(value)

    def error(self, reason: str) -> BatchError:
        return BatchError(
            f"The graph at {self.samples} samples does not follow from captures at {self.low} and {self.high}",
            found=reason,
            remedy=f"Capture the model at {self.samples} samples.",
        )


def _check_structure(low: TrainingGraph, high: TrainingGraph) -> None:
    """BatchError unless the two graphs differ in sizes alone."""

    def shared(graph: TrainingGraph) -> list[tuple[object, ...]]:
        operators: list[tuple[object, ...]] = [
            (o.name, o.kind, o.phase, o.inputs, o.outputs, o.forward, len(o.arguments), [k for k, _ in o.keywords])
            for o in graph.operators
        ]
        tensors = [(t.name, t.dtype, t.kind, t.producer, len(t.shape)) for t in graph.tensors]
        whole = (
            graph.loss,
            graph.inputs,
            graph.parameters,
            graph.precision,
            graph.optimizer,
            graph.warnings,
            graph.rematerialization,
            graph.checkpoints,
        )
        return [*operators, *tensors, whole]

    differing = [(a[0], b[0]) for a, b in zip(shared(low), shared(high), strict=False) if a != b]
    if differing or len(low.operators) != len(high.operators):
        first, second = differing[0] if differing else ("", "")
        raise BatchError(
            f"Captures at {low.samples} and {high.samples} samples are different graphs",
            found=f"{len(low.operators)} and {len(high.operators)} operators; they part at {first} and {second}",
            remedy="Capture the model at the number of samples that you need.",
        )


def _tensor(rule: SizeRule, alike: tuple[Tensor, ...]) -> Tensor:
    first = alike[0]
    if all(tensor.shape == first.shape for tensor in alike):
        return first
    where = f"a dim of {first.name}"
    return replace(first, shape=tuple(rule.at(sizes, where) for sizes in zip(*(t.shape for t in alike), strict=True)))


def _argument(rule: SizeRule, values: tuple[Argument, ...], operator: Operator) -> Argument:
    first, where = values[0], f"an argument of {operator.name} ({operator.kind})"
    parts = [value for value in values if isinstance(value, tuple)]
    if len(parts) == len(values) and len({len(part) for part in parts}) == 1:
        return tuple(_argument(rule, alike, operator) for alike in zip(*parts, strict=True))
    if all(type(value) is type(first) and (value == first or (value != value and first != first)) for value in values):
        return first
    sizes = tuple(value for value in values if type(value) is int)
    if len(sizes) == len(values):
        return rule.at(sizes, where)
    texts = [value for value in values if isinstance(value, str)]
    if operator.kind == SCAN and len(texts) == len(values):
        body = body_between(texts, lambda sizes: rule.at(sizes, where))
        if body is not None:
            return body
    raise rule.error(f"{where} is {' and '.join(f'{value!r:.40}' for value in values)} there, and is not a size")


class _Counter:
    """FLOPs and bytes of operators at their new sizes; each distinct operator runs once on meta tensors."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = tensors
        self._counts: dict[object, tuple[int, int]] = {}

    def __call__(self, operator: Operator, rule: SizeRule) -> tuple[int, int]:
        """(FLOPs, bytes); BatchError when the operator does not return the assumed shapes."""
        key = operator_signature(operator, self.tensors)
        if key not in self._counts:
            self._counts[key] = self._run(operator, rule)
        return self._counts[key]

    def _run(self, operator: Operator, rule: SizeRule) -> tuple[int, int]:
        read, made = [[self.tensors[t] for t in side] for side in (operator.inputs, operator.outputs)]
        assert not any(isinstance(a, Ref) and a.tensor not in operator.inputs for a in operator.arguments)
        values = {
            t.index: torch.empty(t.shape, dtype=getattr(torch, t.dtype), device="meta") for t in dict.fromkeys(read)
        }
        where = f"{operator.name} ({operator.kind})"
        try:
            outputs = run_operator(operator, values, "meta")
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
            raise rule.error(f"{where} rejects its arguments: {str(error).splitlines()[0]}") from error
        for tensor, output in zip(made, outputs, strict=True):
            if tuple(output.shape) != tensor.shape:
                raise rule.error(f"{where} returns {list(output.shape)}, not {list(tensor.shape)}")
        flops = operator_flops(
            operator.kind, read, made, operator.arguments, [to_torch(a, values) for a in operator.arguments], outputs
        )
        return flops, counts.bytes_accessed(operator.kind, read, made, operator.arguments)


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
