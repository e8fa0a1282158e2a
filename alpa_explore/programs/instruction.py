"""The instructions of a rank.

Instructions read and write values, which are identified by numbers. Every rank has values of its own; the ranks of one
stage use the same numbers for the same tensors. A box is the part of a tensor that a rank holds: (start, stop) for each
dim.
"""

from dataclasses import dataclass
from typing import TypeAlias

from alpa_explore.graph import Operator
from alpa_explore.sharding.local.steps import Reduction
from alpa_explore.sharding.reshard import StepKind

Box: TypeAlias = tuple[tuple[int, int], ...]


class _ReadsSource:
    """Mixin of the instructions that read one value."""

    __slots__ = ()
    source: int

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must exist."""
        return (self.source,)


class _WritesTarget:
    """Mixin of the instructions that write one value."""

    __slots__ = ()
    target: int

    @property
    def writes(self) -> tuple[int, ...]:
        """Values that exist afterwards."""
        return (self.target,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(_WritesTarget):
    """Load the rank's box of an input of this microbatch."""

    tensor: int
    box: Box
    target: int

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must exist."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Count(_WritesTarget):
    """Compute the divisor of a mean loss: the mean number of targets of the microbatches of this iteration."""

    loss: int
    """Index of the loss in `graph.operators`."""
    target: int

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must exist."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
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
class Collective(_ReadsSource, _WritesTarget):
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
class Slice(_ReadsSource, _WritesTarget):
    """Take piece number `piece` of `pieces` along a dim; with one piece, the whole value under another number."""

    source: int
    target: int
    dim: int
    piece: int
    pieces: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(_ReadsSource):
    """Send a box of a value (in coordinates of the value) to another rank, without waiting."""

    source: int
    to: int
    message: int
    """Identifies the message: unique between two ranks within one task."""
    box: Box

    @property
    def writes(self) -> tuple[int, ...]:
        """Values that exist afterwards."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive(_WritesTarget):
    """Wait for boxes that other ranks send, and assemble them to a value."""

    target: int
    message: int
    shape: tuple[int, ...]
    dtype: str
    pieces: tuple[tuple[int, Box], ...]
    """(sender, box in coordinates of the value); together they cover the value."""

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must exist."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulate(_WritesTarget):
    """`target` += `source`."""

    source: int
    target: int

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must exist."""
        return (self.source, self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimize(_WritesTarget):
    """One optimizer step on a piece of a weight; the optimizer state stays on the rank."""

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

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must exist."""
        return (self.weight, self.gradient)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign(_ReadsSource, _WritesTarget):
    """Assign a value to a lasting value: the weight that the next iteration reads, the buffer that the next microbatch
    reads."""

    source: int
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """Free values that are not read again."""

    values: tuple[int, ...]

    @property
    def reads(self) -> tuple[int, ...]:
        """Values that must exist."""
        return self.values

    @property
    def writes(self) -> tuple[int, ...]:
        """Values that exist afterwards."""
        return ()


Instruction: TypeAlias = (
    "Load | Count | Compute | Collective | Slice | Send | Receive | Accumulate | Optimize | Assign | Free"
)
