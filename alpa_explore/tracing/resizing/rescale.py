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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from alpa_explore.errors import BatchError
from alpa_explore.graph import Argument, Operator, Ref, Tensor, TrainingGraph, counts, verify
from alpa_explore.graph.loops import SCAN, body_between
from alpa_explore.graph.operator import operator_signature
from alpa_explore.tracing.aten import operator_flops, run_on_meta
from alpa_explore.tracing.operators.drafts import SAME_IF_SAME_SHAPE
from alpa_explore.tracing.symbols import to_torch

OPTIMIZER = "optimizer."
"""How the kinds of update operators begin (`tracing.optimizers`)."""


def rescale(low: TrainingGraph, high: TrainingGraph, samples: int) -> TrainingGraph:
    """The graph of a microbatch of `samples`, from those of `low.samples` and `high.samples` of the same model.

    BatchError, naming the operator or tensor, when the two do not determine it.
    """
    assert 0 < low.samples < high.samples, "two captures at different sizes, the smaller one first"
    if samples in (low.samples, high.samples):
        return low if samples == low.samples else high
    rule = _Line(low.samples, high.samples, samples)
    _check_structure(low, high)
    tensors = tuple(_tensor(rule, a, b) for a, b in zip(low.tensors, high.tensors, strict=True))
    moved = {t.index for t, a in zip(tensors, low.tensors, strict=True) if t.shape != a.shape}
    counter = _Counter(tensors)
    operators = []
    for a, b in zip(low.operators, high.operators, strict=True):
        if (a.arguments, a.keywords) == (b.arguments, b.keywords) and moved.isdisjoint((*a.inputs, *a.outputs)):
            operators.append(a)
            continue
        keywords = zip(a.keywords, b.keywords, strict=True)
        operator = replace(
            a,
            arguments=tuple(_argument(rule, x, y, a) for x, y in zip(a.arguments, b.arguments, strict=True)),
            keywords=tuple((name, _argument(rule, x, y, a)) for (name, x), (_, y) in keywords),
        )
        if a.kind in SAME_IF_SAME_SHAPE:
            kept = [t[a.inputs[0]].shape == t[a.outputs[0]].shape for t in (low.tensors, tensors)]
            if kept[0] != kept[1]:
                raise rule.error(f"{a.name} ({a.kind}) would change nothing, or no longer do so")
        if a.kind.startswith(OPTIMIZER):  # keeps state between steps, and costs the same for every element
            old, new = low.tensors[a.outputs[0]].elements, tensors[a.outputs[0]].elements
            flops, size = a.flops * new // old, a.bytes_accessed * new // old
        else:
            flops, size = counter(operator, rule)
        operators.append(replace(operator, flops=flops, bytes_accessed=size))
    graph = replace(
        low,
        tensors=tensors,
        operators=tuple(operators),
        samples=samples,
        tokens=rule.at(low.tokens, high.tokens, "the number of tokens"),
    )
    return verify(graph)


@dataclass(frozen=True, slots=True)
class _Line:
    """Affine extrapolation of sizes at batch sizes `low` and `high` to batch size `samples`."""

    low: int
    high: int
    samples: int

    def at(self, a: int, b: int, where: str) -> int:
        """The size at `samples`, from those at `low` and `high`. BatchError where it does not follow."""
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


def _tensor(rule: _Line, a: Tensor, b: Tensor) -> Tensor:
    if a.shape == b.shape:
        return a
    where = f"a dim of {a.name}"
    return replace(a, shape=tuple(rule.at(x, y, where) for x, y in zip(a.shape, b.shape, strict=True)))


def _argument(rule: _Line, a: Argument, b: Argument, operator: Operator) -> Argument:
    where = f"an argument of {operator.name} ({operator.kind})"
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return tuple(_argument(rule, x, y, operator) for x, y in zip(a, b, strict=True))
    if type(a) is type(b) and (a == b or (a != a and b != b)):  # nan is unlike itself
        return a
    if type(a) is int and type(b) is int:
        return rule.at(a, b, where)
    if operator.kind == SCAN and isinstance(a, str) and isinstance(b, str):
        body = body_between(a, b, lambda x, y: rule.at(x, y, where))
        if body is not None:
            return body
    raise rule.error(f"{where} is {a!r:.40} and {b!r:.40} there, and is not a size")


class _Counter:
    """FLOPs and bytes of operators at their new sizes; each distinct operator runs once on meta tensors."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = tensors
        self._counts: dict[object, tuple[int, int]] = {}

    def __call__(self, operator: Operator, rule: _Line) -> tuple[int, int]:
        """(FLOPs, bytes); BatchError when the operator does not return the assumed shapes."""
        key = operator_signature(operator, self.tensors)
        if key not in self._counts:
            self._counts[key] = self._run(operator, rule)
        return self._counts[key]

    def _run(self, operator: Operator, rule: _Line) -> tuple[int, int]:
        read, made = [[self.tensors[t] for t in side] for side in (operator.inputs, operator.outputs)]
        assert not any(isinstance(a, Ref) and a.tensor not in operator.inputs for a in operator.arguments)
        where = f"{operator.name} ({operator.kind})"
        try:
            values, outputs = run_on_meta(operator, {t.index: t.shape for t in read}, {t.index: t.dtype for t in read})
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
            raise rule.error(f"{where} rejects its arguments: {str(error).splitlines()[0]}") from error
        for tensor, output in zip(made, outputs, strict=True):
            if tuple(output.shape) != tensor.shape:
                raise rule.error(f"{where} returns {list(output.shape)}, not {list(tensor.shape)}")
        flops = operator_flops(
            operator.kind, read, made, operator.arguments, [to_torch(a, values) for a in operator.arguments], outputs
        )
        return flops, counts.bytes_accessed(operator.kind, read, made, operator.arguments)
