"""The instructions of a rank. Values are numbers; each rank has its own, and those of one stage agree on the numbers.

An instruction says what it reads and what it writes. Boxes are (start, stop) for each dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from alpa_explore.graph import Operator
from alpa_explore.sharding.reshard import StepKind

Box: TypeAlias = tuple[tuple[int, int], ...]


class _ReadsSource:
    """What most instructions read: one value."""

    __slots__ = ()
    source: int

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must be there."""
        return (self.source,)


class _WritesTarget:
    """What most instructions write: one value."""

    __slots__ = ()
    target: int

    @property
    def writes(self) -> tuple[int, ...]:
        """Values that are there afterwards."""
        return (self.target,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(_WritesTarget):
    """The rank's box of an example input of this microbatch."""

    tensor: int
    box: Box
    target: int

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must be there."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Count(_WritesTarget):
    """The divisor of a mean loss: how many targets the microbatches of this iteration have on average."""

    loss: int
    """Place of the loss in `graph.operators`."""
    target: int

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must be there."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """One call of `sharding.local`: Refs, inputs and outputs of the operator are values."""

    operator: Operator
    seed: tuple[int, ...] | None = None
    """For an operator that draws: what its numbers depend on, beside the microbatch."""

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must be there."""
        return self.operator.inputs

    @property
    def writes(self) -> tuple[int, ...]:
        """Values that are there afterwards."""
        return self.operator.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective(_ReadsSource, _WritesTarget):
    """All of `ranks` take part, in this order. `joined` is the dim along which pieces are put together, `cut` the one
    along which the result is divided; None where the kind has none."""

    kind: StepKind
    ranks: tuple[int, ...]
    source: int
    target: int
    joined: int | None = None
    cut: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice(_ReadsSource, _WritesTarget):
    """Piece number `piece` of `pieces` along a dim; a copy of the whole value where there is one piece."""

    source: int
    target: int
    dim: int
    piece: int
    pieces: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(_ReadsSource):
    """A box of a value, in its own coordinates, to another rank. It does not wait."""

    source: int
    to: int
    message: int
    """What the receiver calls it: unique between two ranks in one task."""
    box: Box

    @property
    def writes(self) -> tuple[int, ...]:
        """Values that are there afterwards."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive(_WritesTarget):
    """A value put together from boxes that other ranks send. It waits for all of them."""

    target: int
    message: int
    shape: tuple[int, ...]
    dtype: str
    pieces: tuple[tuple[int, Box], ...]
    """(rank, box in the coordinates of the value); together they cover it."""

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must be there."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulate(_WritesTarget):
    """`target` += `source`; a lasting value, zero at the start of an iteration."""

    source: int
    target: int

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must be there."""
        return (self.source, self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimize(_WritesTarget):
    """One step of the optimizer on a piece of a weight; its state stays with the rank."""

    kind: str
    """'optimizer.adam', …"""
    parameter: int
    """Place in `graph.parameters`."""
    box: Box
    """What of the parameter this rank updates."""
    weight: int
    gradient: int
    """Sum over microbatches; the step takes the mean."""
    target: int

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must be there."""
        return (self.weight, self.gradient)


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(_ReadsSource, _WritesTarget):
    """A lasting value takes another one's place: the weight that the next iteration reads."""

    source: int
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """These values are read no more."""

    values: tuple[int, ...]

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must be there."""
        return self.values

    @property
    def writes(self) -> tuple[int, ...]:
        """Values that are there afterwards."""
        return ()


Instruction: TypeAlias = (
    "Load | Count | Compute | Collective | Slice | Send | Receive | Accumulate | Optimize | Store | Free"
)
