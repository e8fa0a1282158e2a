"""One device under a strategy: its shard of an operator, and what it runs for its share of it, a straight line of
operator calls and collectives.

Values are numbered. 0, 1, … are the local tensors of `Operator.inputs`, by position: an operator that reads a tensor
twice may need two different shards of it. The results of the steps follow. Every device of a mesh makes the same values
and runs the same collectives in the same order; the calls between them may differ (the row offset into a table).
"""

import enum
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from alpa_explore.graph import Argument, Operator, Ref, Symbol, Tensor, tensor_refs
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.spec import PARTIAL, Spec, local_shape
from alpa_explore.sharding.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """An operator with its tensors on the device at `coordinate` of a mesh."""

    operator: Operator
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    strategy: Strategy
    mesh_shape: tuple[int, ...]
    coordinate: tuple[int, ...]

    def input_shape(self, place: int) -> tuple[int, ...]:
        """Local shape of an input."""
        return local_shape(self.strategy.inputs[place], self.inputs[place].shape, self.mesh_shape)

    def output_shape(self, place: int) -> tuple[int, ...]:
        """Local shape of an output."""
        return local_shape(self.strategy.outputs[place], self.outputs[place].shape, self.mesh_shape)

    def block(self, spec: Spec, dim: int) -> int:
        """Number of the block of `dim` that the device holds: a mixed-radix number whose digits are the coordinates
        along the axes that shard `dim`, the first axis most significant."""
        block = 0
        for axis, placement in enumerate(spec):
            if placement == dim:
                block = block * self.mesh_shape[axis] + self.coordinate[axis]
        return block

    def synced_axes(self) -> tuple[int, ...]:
        """Axes along which devices exchange something while the operator runs."""
        return tuple(axis for axis, exchanges in enumerate(self.strategy.exchanges) if exchanges)

    def summed_axes(self) -> tuple[int, ...]:
        """Axes along which the first output is a pending sum over shards of the first input."""
        pairs = zip(self.strategy.inputs[0], self.strategy.outputs[0], strict=True)
        return tuple(axis for axis, (given, made) in enumerate(pairs) if made == PARTIAL and given >= 0)

    def adds(self, place: int) -> bool:
        """Whether this device adds the input at `place` to a pending sum: of the devices that all hold a copy of it,
        the first one does."""
        pairs = zip(self.strategy.inputs[place], self.strategy.outputs[0], strict=True)
        return not any(
            coordinate and made == PARTIAL and given != PARTIAL
            for coordinate, (given, made) in zip(self.coordinate, pairs, strict=True)
        )


class Reduction(enum.Enum):
    """How an all-reduce combines the values of its devices, entry by entry."""

    SUM = "sum"
    MAXIMUM = "maximum"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCollective:
    """A collective on the value `source` of the devices whose coordinates differ only along `axes`, row-major.

    Its fields are those of a `Collective` of a program: an all-gather joins the pieces along `joined`, a reduce-scatter
    cuts their sum along `cut`, an all-to-all cuts along `cut` and joins along `joined`. A permutation cuts every piece
    along `cut`, so that the group has len(order) chunks in all; chunk number order[i] becomes the i-th, and each device
    joins as many as it had. In an all-to-all with `sizes` (two values: rows for each device, rows from
    each) the chunks are of so many rows, and may be of different sizes.
    """

    kind: StepKind
    axes: tuple[int, ...]
    source: int
    target: int
    joined: int | None = None
    cut: int | None = None
    reduction: Reduction = Reduction.SUM
    order: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()


LocalStep: TypeAlias = "Operator | LocalCollective"


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
        numbered = operator.mapped(lambda part: Ref(next(places)) if isinstance(part, Ref) else part)
        self.arguments, self.keywords = numbered.arguments, dict(numbered.keywords)
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
        read = tensor_refs((*arguments, *keywords.values()))
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
        return self._collective(StepKind.ALL_REDUCE, value, axes, reduction=reduction)

    def all_to_all(self, value: Ref, axis: int, *, cut: int, joined: int) -> Ref:
        """Append an exchange along a mesh axis: from shards of dim `joined` to shards of dim `cut`."""
        return self._collective(StepKind.ALL_TO_ALL, value, (axis,), cut=cut, joined=joined)

    def exchange(self, rows: Ref, axes: tuple[int, ...], sizes: tuple[Ref, ...] = ()) -> Ref:
        """Append an all-to-all of rows over the devices along `axes`: equally many for each, or `sizes` (those that are
        sent, those that arrive)."""
        given = tuple(size.tensor for size in sizes)
        return self._collective(StepKind.ALL_TO_ALL, rows, axes, joined=0, cut=0, sizes=given)

    def permute(self, value: Ref, axis: int, cut: int, order: tuple[int, ...]) -> Ref:
        """Append a permutation of the chunks of dim `cut` that the devices along a mesh axis hold: of all len(order)
        chunks, number order[i] becomes the i-th."""
        return self._collective(StepKind.PERMUTE, value, (axis,), cut=cut, order=order)

    def from_previous(self, value: Ref, axis: int, size: int) -> Ref:
        """Append a step of a ring: each of `size` devices along a mesh axis takes the value of the one before it."""
        return self.permute(value, axis, 0, tuple((place - 1) % size for place in range(size)))

    def _collective(self, kind: StepKind, value: Ref, axes: tuple[int, ...], **fields: Any) -> Ref:
        """Append a collective with these fields of `LocalCollective`."""
        step = LocalCollective(kind=kind, axes=axes, source=value.tensor, target=self._next, **fields)
        self._steps.append(step)
        self._next += 1
        return Ref(step.target)

    def cast(self, value: Ref, source: str, target: str) -> Ref:
        """`value`, of dtype `source`, in dtype `target`; no step where they are equal."""
        return value if source == target else self.call("aten._to_copy.default", value, dtype=Symbol("dtype", target))

    def relative(self, numbers: Argument, first: int, count: int) -> tuple[Ref, Ref]:
        """(numbers counted from `first`, a mask of those that are none of the `count` numbers from there on)."""
        shifted = self.call("aten.sub.Tensor", numbers, first)
        before, after = self.call("aten.lt.Scalar", shifted, 0), self.call("aten.ge.Scalar", shifted, count)
        return shifted, self.call("aten.bitwise_or.Tensor", before, after)

    def finish(self, outputs: list[Ref], draws: tuple[int, ...] | None = None) -> LocalCall:
        """The LocalCall of all steps so far, with the values that are its outputs."""
        return LocalCall(steps=tuple(self._steps), outputs=tuple(r.tensor for r in outputs), draws=draws)


def accumulator(dtype: str) -> str:
    """The dtype in which values of `dtype` are summed: float32 for 16-bit floats, which would lose small addends or
    overflow."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype
