"""What one device runs for its share of an operator: a straight line of operator calls and all-reduces.

Values are numbered. 0, 1, … are the local tensors of `Operator.inputs`, by position: an operator that reads a tensor
twice may need two different shards of it. The results of the steps follow. Every device of a mesh runs the same number
of steps, with the all-reduces at the same positions; arguments of a call may differ (the row offset into a table).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from alpa_explore.graph import Argument, Operator, Ref, Symbol, tensor_refs


class Reduction(enum.Enum):
    """How an all-reduce combines the values of its devices, entry by entry."""

    SUM = "sum"
    MAXIMUM = "maximum"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """Sum or maximum of the value `source` over the devices whose coordinates differ only along `axes`."""

    axes: tuple[int, ...]
    source: int
    target: int
    reduction: Reduction = Reduction.SUM


LocalStep: TypeAlias = "Operator | AllReduce"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCall:
    """One device's share of an operator."""

    steps: tuple[LocalStep, ...]
    """Calls are Operators whose `inputs`, `outputs` and Refs are value numbers; their FLOPs and bytes are those of the
    whole operator."""
    outputs: tuple[int, ...]
    """The values that are the local tensors of `Operator.outputs`."""
    draws: tuple[int, ...] | None = None
    """For an operator that draws random numbers: the axes whose coordinate enters the seed, so that different shards
    differ and replicas agree. None for all others."""


class StepWriter:
    """Writes the steps of one LocalCall."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._steps: list[LocalStep] = []
        self._next = len(operator.inputs)
        places = iter(range(len(operator.inputs)))
        self.arguments = tuple(_numbered(a, places) for a in operator.arguments)
        self.keywords = {name: _numbered(a, places) for name, a in operator.keywords}
        """The operator's keyword arguments; as in `arguments`, Refs are value numbers."""

    def one_more_input(self) -> Ref:
        """One more input value after the operator's own; to be called before any step is appended."""
        self._next += 1
        return Ref(self._next - 1)

    def call_all(
        self, kind: str, arguments: tuple[Argument, ...], keywords: dict[str, Argument], count: int
    ) -> list[Ref]:
        """Append a call that returns `count` tensors."""
        made = tuple(range(self._next, self._next + count))
        self._next += count
        read = tuple(t for a in (*arguments, *keywords.values()) for t in tensor_refs(a))
        self._steps.append(
            replace(
                self._operator,
                kind=kind,
                inputs=read,
                outputs=made,
                arguments=arguments,
                keywords=tuple(keywords.items()),
            )
        )
        return [Ref(value) for value in made]

    def call(self, kind: str, *arguments: Argument, **keywords: Argument) -> Ref:
        """Append a call that returns one tensor."""
        return self.call_all(kind, arguments, keywords, 1)[0]

    def all_reduce(self, value: Ref, axes: tuple[int, ...], reduction: Reduction = Reduction.SUM) -> Ref:
        """Append a sum (or a maximum) over the devices along `axes`; no step where there are none."""
        if not axes:
            return value
        self._steps.append(AllReduce(axes=axes, source=value.tensor, target=self._next, reduction=reduction))
        self._next += 1
        return Ref(self._next - 1)

    def cast(self, value: Ref, source: str, target: str) -> Ref:
        """`value`, of dtype `source`, in dtype `target`; no step where they are equal."""
        return value if source == target else self.call("aten._to_copy.default", value, dtype=Symbol("dtype", target))

    def finish(self, outputs: list[Ref], draws: tuple[int, ...] | None = None) -> LocalCall:
        """The LocalCall of all steps so far, with the values that are its outputs."""
        return LocalCall(steps=tuple(self._steps), outputs=tuple(r.tensor for r in outputs), draws=draws)


def accumulator(dtype: str) -> str:
    """The dtype in which values of `dtype` are summed: float32 for 16-bit floats, which would lose small addends or
    overflow."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _numbered(argument: Argument, places: Iterator[int]) -> Argument:
    if isinstance(argument, Ref):
        return Ref(next(places))
    if isinstance(argument, tuple):
        return tuple(_numbered(a, places) for a in argument)
    return argument
