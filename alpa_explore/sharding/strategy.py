"""Strategies of an operator (the paper's "parallel algorithms"), enumerated from its splits.

The *splits* of an operator are the ways in which one mesh axis can divide its work. A strategy assigns one split to
each mesh axis, or none (the operator is then replicated along that axis).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from alpa_explore.errors import OptionError
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.spec import REPLICATE, Divisibility, Spec, axes_products, divisibility, specs_of_divisibility

NUMBER_BYTES = 4
"""Of a single number that operators exchange: a maximum or a sum is a float32."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective that the devices along an axis run inside an operator."""

    kind: StepKind
    bytes: int
    """In a split: of the whole tensor that is exchanged. In a strategy: of the larger side (input or output) on one
    device, as `cost.collectives` counts them; for a ring that is the tensor whose blocks pass by."""
    beside: bool = False
    """Whether it runs beside the operator's own computing, a block at a time: each block of n is computed while the
    next one is sent."""
    undivided: tuple[str, ...] = ()
    """Factors that do not divide its bytes on other axes: they divide nothing of what is exchanged."""
    copies: int = 0
    """Of rows that go to experts: how many each token has; 0 for what is no such rows."""

    @property
    def is_number(self) -> bool:
        """Whether it is of a single number, such as how many targets count: software adds up those of all microbatches
        and sums them once an iteration, as it does with the loss. Neither has a price."""
        return self.bytes <= NUMBER_BYTES


@dataclass(frozen=True, slots=True)
class Split:
    """One way to divide an operator along one mesh axis.

    `inputs` and `outputs` give a placement for each tensor of `Operator.inputs` / `.outputs`: the sharded dim,
    REPLICATE, or PARTIAL. A summed factor makes the outputs PARTIAL; a pending sum that passes through a linear
    operator has PARTIAL on both sides.
    """

    factor: str
    """Name of the loop dim, for display: 'M', 'K', 'batch', 'heads'; 'sum' for a pending sum that passes through."""
    size: int
    """Extent of the loop dim; the sizes of the mesh axes assigned to it must divide it."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    exchanges: tuple[Exchange, ...] = ()
    """What the devices of the axis exchange while the operator runs (the statistics of a batch norm, the maxima and
    sums of a softmax, the keys and values of a ring attention): other factors on other axes divide the bytes."""
    shares_dims_with: tuple[str, ...] = ()
    """Other factors with which it may share a dim of a tensor: it divides their loops too, and the blocks nest."""
    divides: bool = True
    """True when each device does 1 / axis size of the work (a pending sum that passes through divides nothing)."""
    only_with: tuple[str, ...] | None = None
    """The factors that may divide the other axes, which it divides none of; None: any, and the same one again."""
    inside: str = ""
    """A factor whose loop dim it divides too while the operator runs: the axes of both together must divide that."""
    inner_of: str = ""
    """For a view that merges dims or takes them apart: the factor of the dim before this one. Blocks stay contiguous
    only where the axes of that factor divide it to single entries and come before the axes of this one."""
    ramp: float = 0.0
    """Share of the rows of the loop dim over which their cost rises evenly from 0, and stays (causal attention: 1, with
    a window less): the device with the last of equal blocks is the one the others wait for."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The splits of an operator and where they come from."""

    splits: tuple[Split, ...]
    heavy: bool
    """Whether its work must not be replicated along a mesh axis that could divide it."""
    how: str
    """'rule'; 'discovered' when the kind has no rule and running the operator established splits; else 'replicated'."""
    reason: str = ""
    """Why it is replicated; empty otherwise."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """How one operator is divided over a mesh: the specs it reads and writes, and the share of work of one device."""

    factors: tuple[str, ...]
    """For each mesh axis the factor it divides, '-' for none."""
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    work_share: float
    """Work of the device that has the most to do, as a share of the whole operator."""
    exchanges: tuple[tuple[Exchange, ...], ...]
    """For each mesh axis what its devices exchange inside the operator; their time is part of c_v of Eq. 1."""

    @property
    def name(self) -> str:
        """'M·K' on a 2-D mesh: axis 0 divides M, axis 1 divides K."""
        return "·".join(self.factors) or "whole"


MOST_COMBINATIONS = 100_000
"""Limit on the assignments of splits to mesh axes, for one operator. More would take seconds to enumerate, and the cost
matrices between such operators gigabytes."""


def enumerate_strategies(
    splits: Sequence[Split],
    input_shapes: Sequence[tuple[int, ...]],
    output_shapes: Sequence[tuple[int, ...]],
    mesh_shape: Sequence[int],
    *,
    replicable: bool,
) -> tuple[Strategy, ...]:
    """All legal strategies on a mesh of any rank, from the product of the splits over its axes.

    An operator that is not `replicable` (a heavy one) is replicated along an axis only where nothing else is legal.
    Never empty: the fully replicated strategy is always legal. OptionError when there would be too many.
    """
    if (count := (len(splits) + 1) ** len(mesh_shape)) > MOST_COMBINATIONS:
        raise OptionError(
            "Too many strategies to enumerate",
            found=f"{count:,} combinations of {len(splits)} splits on a mesh of {len(mesh_shape)} axes",
            remedy="Merge axes of the mesh: two axes of 8 and 4 devices can be one of 32.",
        )
    counts = axes_products(tuple(mesh_shape))
    choices = _choices(
        tuple(splits),
        divisibility([s.size for s in splits], mesh_shape),
        tuple(divisibility(shape, mesh_shape) for shape in input_shapes),
        tuple(divisibility(shape, mesh_shape) for shape in output_shapes),
        len(mesh_shape),
        tuple(tuple(n == s.size for n in counts) for s in splits) if any(s.inner_of for s in splits) else (),
    )
    if not replicable:
        most = max(counts[c.working] for c in choices)
        choices = tuple(c for c in choices if "-" not in c.factors and counts[c.working] >= most) or tuple(
            c for c in choices if counts[c.working] == most
        )
    nothing = ((),) * len(mesh_shape)
    return tuple(
        Strategy(
            c.factors,
            c.inputs,
            c.outputs,
            _busiest(c.ramp, counts[c.uneven]) / counts[c.working],
            tuple(tuple(_on_device(*e, counts) for e in of_axis) for of_axis in c.exchanges)
            if c.exchanges
            else nothing,
        )
        for c in choices
    )


class _Choice(NamedTuple):
    """A strategy without its work share, which depends on the sizes of the mesh axes."""

    factors: tuple[str, ...]
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    exchanges: tuple[tuple[tuple[Exchange, int], ...], ...]
    """For each axis its exchanges, each with the axes that divide its bytes, as a bit set; empty where there are
    none on any axis."""
    working: int
    """The axes that divide the work, as a bit set."""
    uneven: int
    """Those of them that divide a loop dim whose rows do not cost the same."""
    ramp: float
    """Of that dim."""


# Memo of a pure function.
@lru_cache(maxsize=4096)
def _choices(
    splits: tuple[Split, ...],
    sizes: tuple[Divisibility, ...],
    inputs: tuple[tuple[Divisibility, ...], ...],
    outputs: tuple[tuple[Divisibility, ...], ...],
    axes: int,
    fills: tuple[Divisibility, ...],
) -> tuple[_Choice, ...]:
    """The legal strategies of one operator, given which axes divide the sizes of its splits and the dims of its
    tensors, and, where a split is the inner of another, which divide the sizes of splits to single entries."""
    legal = [frozenset(specs_of_divisibility(divided, axes, True)) for divided in (*inputs, *outputs)]
    whole = Split("-", 1, (REPLICATE,) * len(inputs), (REPLICATE,) * len(outputs), divides=False)
    divides = dict(zip(map(id, splits), sizes, strict=True))
    of_factor = {s.factor: s for s in splits}
    choices: dict[tuple[tuple[Spec, ...], tuple[Spec, ...], tuple[str, ...]], _Choice] = {}
    for assignment in itertools.product((whole, *splits), repeat=axes):
        if any(s.divides and not divides[id(s)][_axes_of(assignment, s)] for s in assignment):
            continue
        if fills and not all(_inside(s, assignment, splits, fills) for s in assignment if s.inner_of):
            continue
        if any(s.only_with is not None and not _permits(s, assignment) for s in assignment):
            continue
        if any(
            s.inside and not divides[id(inner)][_axes_of(assignment, s) | _axes_of(assignment, inner)]
            for s in assignment
            if (inner := of_factor.get(s.inside)) is not None
        ):
            continue
        ins = tuple(tuple(s.inputs[i] for s in assignment) for i in range(len(inputs)))
        outs = tuple(tuple(s.outputs[o] for s in assignment) for o in range(len(outputs)))
        # What is exchanged inside tells strategies with the same specs apart.
        key = ins, outs, tuple(s.factor for s in assignment if s.exchanges)
        if key in choices or _collides(assignment):
            continue
        if all(spec in specs for spec, specs in zip((*ins, *outs), legal, strict=True)):
            working = sum(1 << axis for axis, s in enumerate(assignment) if s.divides)
            exchanges = (
                tuple(
                    tuple((e, _dividing(e, assignment, _axes_of(assignment, s))) for e in s.exchanges)
                    for s in assignment
                )
                if any(s.exchanges for s in assignment)
                else ()
            )
            uneven = sum(1 << axis for axis, s in enumerate(assignment) if s.ramp)
            ramp = max((s.ramp for s in assignment), default=0.0)
            factors = tuple(s.factor for s in assignment)
            choices[key] = _Choice(factors, ins, outs, exchanges, working, uneven, ramp)
    return tuple(choices.values())


def _busiest(ramp: float, blocks: int) -> float:
    """Work of the last of equal blocks of rows over the mean, where the cost of rows rises over the share `ramp`."""
    if ramp == 1.0 or blocks == 1:
        return 2.0 - 1.0 / blocks
    start = 1.0 - 1.0 / blocks
    work = 1.0 - start if ramp <= start else 1.0 - ramp + (ramp * ramp - start * start) / (2.0 * ramp)
    return blocks * work / (1.0 - ramp / 2.0)


_SHARDED_ON_ITS_AXIS = (StepKind.ALL_TO_ALL, StepKind.PERMUTE)
"""Kinds of exchange whose input and output are both sharded along the axis of the exchange."""


def _dividing(exchange: Exchange, assignment: Sequence[Split], own: int) -> int:
    """The axes that divide the bytes of an exchange along the axes `own`, as a bit set."""
    working = sum(1 << axis for axis, s in enumerate(assignment) if s.divides and s.factor not in exchange.undivided)
    return working if exchange.kind in _SHARDED_ON_ITS_AXIS else working & ~own


def _on_device(exchange: Exchange, dividing: int, counts: Sequence[int]) -> Exchange:
    """An exchange with its bytes on one device: what other axes divide keeps at least one number."""
    local = max(exchange.bytes // counts[dividing], min(exchange.bytes, NUMBER_BYTES))
    return Exchange(exchange.kind, local, exchange.beside, copies=exchange.copies)


def all_reduced(count: int) -> tuple[Exchange, ...]:
    """An all-reduce of so many bytes; nothing where there are none."""
    return (Exchange(StepKind.ALL_REDUCE, count),) if count else ()


def _inside(split: Split, assignment: Sequence[Split], splits: Sequence[Split], fills: Sequence[Divisibility]) -> bool:
    """Whether the outer factor of a split is divided to single entries, by axes before those of the split."""
    for place, outer in enumerate(splits):
        if outer.factor == split.inner_of:
            axes, own = _axes_of(assignment, outer), _axes_of(assignment, split)
            return fills[place][axes] and axes < (own & -own)
    return False


def _permits(split: Split, assignment: Sequence[Split]) -> bool:
    """Whether a split divides one axis alone, and the others by factors that it permits."""
    others = [s for s in assignment if s is not split]
    return len(others) == len(assignment) - 1 and all(s.factor in ("-", *(split.only_with or ())) for s in others)


def _axes_of(assignment: Sequence[Split], split: Split) -> int:
    """The axes that a split is assigned to, as a bit set."""
    return sum(1 << axis for axis, other in enumerate(assignment) if other is split)


def _collides(assignment: Sequence[Split]) -> bool:
    """True when two different factors would shard the same dim of one tensor, and their blocks do not nest."""
    for tensor in range(len(assignment[0].inputs) + len(assignment[0].outputs) if assignment else 0):
        owner: dict[int, Split] = {}
        for split in assignment:
            placement = (*split.inputs, *split.outputs)[tensor]
            if placement >= 0:
                other = owner.setdefault(placement, split)
                if split.factor not in (other.factor, *other.shares_dims_with) and other.factor not in (
                    split.inner_of,
                    *split.shares_dims_with,
                ):
                    return True
    return False
