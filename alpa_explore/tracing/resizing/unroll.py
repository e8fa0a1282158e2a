"""The graph of a model with n equal periods of blocks, from captures with 2 and with 4 of them (or 3 and 5).

A graph is written as rows, in parts: weights; other tensors without a producer; forward, backward and update operators,
each with its output tensors; parameters; what the forward pass writes. A row has a form (all its fields) and
numbers: those of tensors and operators, and numbers inside names. With n periods the rows of each part are

    head, period + s, period + 2·s, …, period + (n − 2)·s, tail        x(n) = x(2) + (x(4) − x(2)) / 2 · (n − 2)

where the period is the end of the head, s is the step by which each of its numbers grows from one period to the next,
and x is any number of the head or the tail. The two captures must confirm this, or nothing is unrolled: the capture
with 4 periods has the rows of the other and two more periods; all three periods have the same forms; each number grows
by the same s twice; x(4) − x(2) is even. (The first and the last period may differ from the others: in the backward
pass the gradient into the last block is not a sum.) That all further periods are equal must be known to the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

from alpa_explore.graph import Operator, Parameter, Phase, Ref, Tensor, TensorKind, TrainingGraph, Written, verify
from alpa_explore.tracing.joint_graph.step_calls import Call

FEW, MORE = 2, 4
"""Numbers of periods in the two captures."""
_Part: TypeAlias = Tensor | Operator | Parameter | Written | TrainingGraph

_NUMBERED = (TensorKind.VALUE, TensorKind.RETURNED, TensorKind.ROUTED, TensorKind.GRADIENT)
"""Kinds of the tensors that are named after operators."""
_INDICES = frozenset(
    {"index", "inputs", "outputs", "forward", "producer", "tensor", "gradient", "update", "loss", "value"}
)
"""Fields that hold tensor or operator numbers."""
_TEXTS = frozenset({"name", "module"})
"""Fields that may contain the number of a block, or of a traced node."""
_DIGITS = re.compile(r"(0|[1-9]\d*)")
_COUNTED = re.compile(r"(.*?)(_\d+)?(\..*)?")
"""The name of a traced node: base name, number of earlier nodes of that name ('add', 'add_1', …), '.output'."""


@dataclass(frozen=True, slots=True)
class _Row:
    form: str
    """The parts with 0 in place of all numbers, as text."""
    numbers: tuple[int, ...]
    parts: tuple[_Part, ...] = ()
    """With the numbers of the capture."""

    def moved(self, steps: Iterable[int], times: int) -> _Row:
        return replace(self, numbers=tuple(n + times * step for n, step in zip(self.numbers, steps, strict=True)))

    @property
    def filled(self) -> tuple[Any, ...]:
        """The parts with the row's own numbers."""
        numbers = iter(self.numbers)
        return tuple(_renumbered(part, lambda _: next(numbers)) for part in self.parts)


def unroll(few: TrainingGraph, more: TrainingGraph, periods: int, begun: int = FEW) -> TrainingGraph | None:
    """The graph with `periods` periods; None when the captures with `begun` and two more do not determine it."""
    parts = []
    for rows_of_few, rows_of_more in zip(_parts(few), _parts(more), strict=True):
        rows = _continued(rows_of_few, rows_of_more, periods - begun)
        if rows is None:
            return None
        parts.append([row.filled for row in rows])
    ((whole,),), weights, others, forward, backward, update, parameters, written = parts
    operator_rows = (*forward, *backward, *update)
    tensors = [tensor for row in (*weights, *others, *(row[1:] for row in operator_rows)) for tensor in row]
    graph = replace(
        whole,
        tensors=tuple(sorted(tensors, key=lambda t: t.index)),
        operators=tuple(operator for operator, *_ in operator_rows),
        parameters=tuple(parameter for (parameter,) in parameters),
        written=tuple(one for (one,) in written),
    )
    return verify(graph)


def continued_calls(few: Sequence[Call], more: Sequence[Call], periods: int, begun: int = FEW) -> list[Call] | None:
    """The same for the calls of one pass: forward or backward."""
    rows_of_few, rows_of_more = ([_Row(*call) for call in calls] for calls in (few, more))
    rows = _continued(rows_of_few, rows_of_more, periods - begun)
    return None if rows is None else [(row.form, row.numbers) for row in rows]


def _parts(graph: TrainingGraph) -> tuple[list[_Row], ...]:
    def of_phase(phase: Phase) -> list[_Row]:
        return [_row(o, *(graph.tensors[t] for t in o.outputs)) for o in graph.operators if o.phase is phase]

    return (
        [_row(replace(graph, tensors=(), operators=(), parameters=(), written=()))],
        [_row(t) for t in graph.tensors if t.producer is None and t.kind is TensorKind.PARAMETER],
        [_row(t) for t in graph.tensors if t.producer is None and t.kind is not TensorKind.PARAMETER],
        *map(of_phase, Phase),
        [_row(p) for p in graph.parameters],
        [_row(w) for w in graph.written],
    )


def _continued(few: Sequence[_Row], more: Sequence[_Row], added: int) -> list[_Row] | None:
    """The rows of one part with `added` more periods than `few`; None when the captures do not determine them."""
    size, odd = divmod(len(more) - len(few), MORE - FEW)
    a, b = ([row.form for row in rows] for rows in (few, more))  # as text, because 1 == 1.0 == True
    unlike = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(few))
    if odd or size < 0:
        return None
    # The first rows of the tail may have the forms of a period's first rows: then the head ends before them.
    for cut in range(unlike, max(size, unlike - size) - 1, -1):
        start, second, third = cut - size, cut + size, cut + 2 * size
        if a[cut:] == b[third:] and b[start:cut] == b[cut:second] == b[second:third]:
            rows = _continued_at(cut, few, more, size, added)
            if rows is not None:
                return rows
    return None


def _continued_at(cut: int, few: Sequence[_Row], more: Sequence[_Row], size: int, added: int) -> list[_Row] | None:
    """`_continued` where the head ends at `cut`, by the numbers of the rows."""
    apart, start, second, third = MORE - FEW, cut - size, cut + size, cut + 2 * size
    steps = _steps(more[start:cut], more[cut:second])
    if steps != _steps(more[cut:second], more[second:third]):
        return None
    growth = _steps(few, (*more[:cut], *more[third:]))
    if any(n % apart for row in growth for n in row):
        return None
    ends = [row.moved([n // apart for n in by], added) for row, by in zip(few, growth, strict=True)]
    period = list(zip(ends[start:cut], steps, strict=True))
    return [*ends[:cut], *(row.moved(by, times + 1) for times in range(added) for row, by in period), *ends[cut:]]


def _steps(before: Sequence[_Row], after: Sequence[_Row]) -> list[tuple[int, ...]]:
    """For each row the differences of its numbers."""
    return [tuple(y - x for x, y in zip(a.numbers, b.numbers, strict=True)) for a, b in zip(before, after, strict=True)]


def _row(*parts: _Part) -> _Row:
    numbers: list[int] = []

    def taken(number: int) -> int:
        numbers.append(number)
        return 0

    # By fields: the own text of a graph leaves most of them out.
    form = repr([[getattr(one, f.name) for f in fields(one)] for one in (_renumbered(p, taken) for p in parts)])
    return _Row(form, tuple(numbers), parts)


def _renumbered(value: _Part, number: Callable[[int], int]) -> _Part:
    """A Tensor, Operator, Parameter or graph with `number` of each number in it, in order."""
    counted = isinstance(value, Tensor) and value.kind in _NUMBERED
    counted |= isinstance(value, Operator) and not value.kind.startswith("optimizer.")

    def changed(field: str, part: Any) -> Any:
        if isinstance(part, Ref):
            return Ref(number(part.tensor))
        if field in _INDICES and type(part) is int:
            return number(part)
        if field in _TEXTS and isinstance(part, str):
            return _text(part, field == "name" and counted, number)
        return tuple(changed(field, p) for p in part) if isinstance(part, tuple) else part

    return type(value)(**{f.name: changed(f.name, getattr(value, f.name)) for f in fields(value)})


def _text(text: str, counted: bool, number: Callable[[int], int]) -> str:
    """`counted`: the name of a node, whose suffix _0 is not written."""
    base, count, rest = _counted(text) if counted else (text, "", "")
    made = _DIGITS.sub(lambda digits: str(number(int(digits[0]))), f"{base}{count or '_0' * counted}{rest}")
    if not counted:
        return made
    base, count, rest = _counted(made)
    return f"{base}{count if count != '_0' else ''}{rest}"


def _counted(name: str) -> tuple[str, str, str]:
    match = _COUNTED.fullmatch(name)
    assert match is not None
    return match[1], match[2] or "", match[3] or ""
