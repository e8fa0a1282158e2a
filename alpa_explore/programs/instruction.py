"""The instructions of a rank.

Instructions read and write values, which are identified by numbers. Every rank has values of its own; the ranks of one
stage use the same numbers for the same tensors. A box is the part of a tensor that a rank holds: (start, stop) for each
dim.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from alpa_explore.graph import Operator
from alpa_explore.sharding.local.steps import Reduction
from alpa_explore.sharding.reshard import StepKind

Box: TypeAlias = tuple[tuple[int, int], ...]


class _Instruction:
    """What it reads and writes is in the fields that `READS` and `WRITES` name."""

    __slots__ = ()
    READS: ClassVar[tuple[str, ...]] = ("source",)
    WRITES: ClassVar[tuple[str, ...]] = ("target",)

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must exist."""
        return tuple(getattr(self, name) for name in self.READS)

    @property
    def writes(self) -> tuple[int, ...]:
        """Values that exist afterwards."""
        return tuple(getattr(self, name) for name in self.WRITES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(_Instruction):
    """Load the rank's box of an input of this microbatch."""

    READS = ()
    tensor: int
    box: Box
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Count(_Instruction):
    """Compute the divisor of a mean loss: the mean number of targets of the microbatches of this iteration."""

    READS = ()
    loss: int
    """Index of the loss in `graph.operators`."""
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute(_Instruction):
    """Run an operator on local shards (`sharding.local`); its Refs, inputs and outputs are numbers of values."""

    operator: Operator
    seed: tuple[int, ...] | None = None
    """For an operator that draws random numbers: what they depend on besides the microbatch."""

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must exist."""
        return self.operator.inputs

    @property
    def writes(self) -> tuple[int, ...]:
        """Values that exist afterwards."""
        return self.operator.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective(_Instruction):
    """A collective of `ranks`, in this order.

    `joined` is the dim along which pieces are concatenated, `cut` the dim along which the result is split; None where
    the kind of collective has no such dim. `reduction` is how an all-reduce or a reduce-scatter combines the pieces. In
    a permutation the ranks have len(order) chunks of dim `cut` in all, and number order[i] becomes the i-th. `sizes` of
    an all-to-all of rows are two values: the rows that go to each rank, and those that come from each.
    """

    kind: StepKind
    ranks: tuple[int, ...]
    source: int
    target: int
    joined: int | None = None
    cut: int | None = None
    reduction: Reduction = Reduction.SUM
    order: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must exist."""
        return (self.source, *self.sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice(_Instruction):
    """Take piece number `piece` of `pieces` along a dim; with one piece, the whole value under another number."""

    source: int
    target: int
    dim: int
    piece: int
    pieces: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(_Instruction):
    """Send a box of a value (in coordinates of the value) to another rank, without waiting."""

    WRITES = ()
    source: int
    to: int
    message: int
    """Identifies the message: unique between two ranks within one task."""
    box: Box


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive(_Instruction):
    """Wait for boxes that other ranks send, and assemble them to a value."""

    READS = ()
    target: int
    message: int
    shape: tuple[int, ...]
    dtype: str
    pieces: tuple[tuple[int, Box], ...]
    """(sender, box in coordinates of the value); together they cover the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulate(_Instruction):
    """`target` += `source`."""

    READS = ("source", "target")
    source: int
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimize(_Instruction):
    """One optimizer step on a piece of a weight; the optimizer state stays on the rank."""

    READS = ("weight", "gradient")
    kind: str
    """'optimizer.adam', …"""
    parameter: int
    """Index in `graph.parameters`."""
    box: Box
    """The part of the parameter that this rank updates."""
    weight: int
    gradient: int
    """The sum over microbatches; the step uses the mean."""
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign(_Instruction):
    """Assign a value to a lasting value: the weight that the next iteration reads, the buffer that the next microbatch
    reads."""

    source: int
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Free(_Instruction):
    """Free values that are not read again."""

    WRITES = ()
    values: tuple[int, ...]

    @property
    def reads(self) -> tuple[int, ...]:
        """All that it frees."""
        return self.values


Instruction: TypeAlias = (
    "Load | Count | Compute | Collective | Slice | Send | Receive | Accumulate | Optimize | Assign | Free"
)
