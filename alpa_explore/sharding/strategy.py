"""Strategies of an operator (the paper's "parallel algorithms"), enumerated from its splits.

The *splits* of an operator are the ways in which one mesh axis can divide its work. A strategy assigns one split to
each mesh axis, or none (the operator is then replicated along that axis).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from alpa_explore.errors import OptionError
from alpa_explore.sharding.spec import REPLICATE, Divisibility, Spec, axes_products, divisibility, specs_of_divisibility


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
    sync_bytes: int = 0
    """Bytes that the devices of the axis all-reduce while the operator runs (the statistics of a batch norm, the maxima
    and sums of a softmax), for the whole tensor: other factors on other axes divide them."""
    divides: bool = True
    """True when each device does 1 / axis size of the work (a pending sum that passes through divides nothing)."""
    triangular: bool = False
    """True when row i of the loop dim costs about i (causal attention): the last of n equal blocks is (2n − 1) / n
    times the mean, and that device is the one the others wait for."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """How one operator is divided over a mesh: the specs it reads and writes, and the share of work of one device."""

    factors: tuple[str, ...]
    """For each mesh axis the factor it divides, '-' for none."""
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    work_share: float
    """Work of the device that has the most to do, as a share of the whole operator."""
    sync_bytes: tuple[int, ...]
    """For each mesh axis the bytes all-reduced along it inside the operator; their time is part of c_v of Eq. 1."""

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
    )
    if not replicable:
        most = max(counts[c.working] for c in choices)
        choices = tuple(c for c in choices if "-" not in c.factors and counts[c.working] >= most) or tuple(
            c for c in choices if counts[c.working] == most
        )
    return tuple(
        Strategy(
            c.factors,
            c.inputs,
            c.outputs,
            (2.0 - 1.0 / counts[c.triangular]) / counts[c.working],
            _synced(c, counts),
        )
        for c in choices
    )


class _Choice(NamedTuple):
    """A strategy without its work share, which depends on the sizes of the mesh axes."""

    factors: tuple[str, ...]
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    sync: tuple[tuple[int, int], ...]
    """For each axis: `Split.sync_bytes`, and the axes that another factor divides, as a bit set."""
    working: int
    """The axes that divide the work, as a bit set."""
    triangular: int
    """Those of them that divide a triangular loop dim."""


# Memo of a pure function.
@lru_cache(maxsize=4096)
def _choices(
    splits: tuple[Split, ...],
    sizes: tuple[Divisibility, ...],
    inputs: tuple[tuple[Divisibility, ...], ...],
    outputs: tuple[tuple[Divisibility, ...], ...],
    axes: int,
) -> tuple[_Choice, ...]:
    """The legal strategies of one operator, given which axes divide the sizes of its splits and the dims of its
    tensors."""
    legal = [frozenset(specs_of_divisibility(divided, axes, True)) for divided in (*inputs, *outputs)]
    whole = Split("-", 1, (REPLICATE,) * len(inputs), (REPLICATE,) * len(outputs), divides=False)
    divides = dict(zip(map(id, splits), sizes, strict=True))
    choices: dict[tuple[tuple[Spec, ...], tuple[Spec, ...]], _Choice] = {}
    for assignment in itertools.product((whole, *splits), repeat=axes):
        if any(s.divides and not divides[id(s)][_axes_of(assignment, s)] for s in assignment):
            continue
        ins = tuple(tuple(s.inputs[i] for s in assignment) for i in range(len(inputs)))
        outs = tuple(tuple(s.outputs[o] for s in assignment) for o in range(len(outputs)))
        if (ins, outs) in choices or _collides(assignment):
            continue
        if all(spec in specs for spec, specs in zip((*ins, *outs), legal, strict=True)):
            working = sum(1 << axis for axis, s in enumerate(assignment) if s.divides)
            sync = tuple((s.sync_bytes, working & ~_axes_of(assignment, s)) for s in assignment)
            triangular = sum(1 << axis for axis, s in enumerate(assignment) if s.triangular)
            factors = tuple(s.factor for s in assignment)
            choices[ins, outs] = _Choice(factors, ins, outs, sync, working, triangular)
    return tuple(choices.values())


def _synced(choice: _Choice, counts: Sequence[int]) -> tuple[int, ...]:
    """`Strategy.sync_bytes`: a statistic that other axes divide keeps at least one number of 4 bytes."""
    return tuple(max(sent // counts[others], min(sent, 4)) if sent else 0 for sent, others in choice.sync)


def _axes_of(assignment: Sequence[Split], split: Split) -> int:
    """The axes that a split is assigned to, as a bit set."""
    return sum(1 << axis for axis, other in enumerate(assignment) if other is split)


def _collides(assignment: Sequence[Split]) -> bool:
    """True when two different factors would shard the same dim of one tensor: their blocks do not nest."""
    for tensor in range(len(assignment[0].inputs) + len(assignment[0].outputs) if assignment else 0):
        owner: dict[int, str] = {}
        for split in assignment:
            placement = (*split.inputs, *split.outputs)[tensor]
            if placement >= 0 and owner.setdefault(placement, split.factor) != split.factor:
                return True
    return False
