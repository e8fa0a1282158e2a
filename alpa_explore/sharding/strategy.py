"""Strategies of an operator (the paper's "parallel algorithms"), enumerated from its splits.

A rule gives the *splits* of an operator: the ways in which one mesh axis can divide its work. A strategy assigns to
each mesh axis one split, or none (the operator is then replicated along that axis).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore.errors import OptionError
from alpa_explore.sharding.spec import REPLICATE, Spec, is_legal


@dataclass(frozen=True, slots=True)
class Split:
    """One way to divide an operator along one mesh axis.

    `inputs` and `outputs` give a placement for each tensor of `Operator.inputs` / `.outputs`: the dim that is cut,
    REPLICATE, or PARTIAL. A summed factor makes the outputs PARTIAL; a pending sum that passes through a linear
    operator has PARTIAL on both sides.
    """

    factor: str
    """Name of the loop dim, for people: 'M', 'K', 'batch', 'heads'; 'sum' for a pending sum that passes through."""
    size: int
    """Extent of the loop dim; the axes assigned to it must divide it."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    sync_bytes: int = 0
    """Bytes that each device all-reduces along the axis while the operator runs (the statistics of a batch norm)."""
    divides: bool = True
    """True when each device does 1 / axis size of the work (a pending sum that passes through divides nothing)."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """How one operator is divided over a mesh: the specs it reads and writes, and the share of work of one device."""

    factors: tuple[str, ...]
    """For each mesh axis the factor it divides, '-' for none."""
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    work_share: float
    sync_bytes: tuple[int, ...]
    """For each mesh axis what is all-reduced along it inside the operator: c_vi of Eq. 1."""

    @property
    def name(self) -> str:
        """'M·K' on a 2-D mesh: axis 0 divides M, axis 1 divides K."""
        return "·".join(self.factors) or "whole"


MOST_COMBINATIONS = 100_000
"""Of splits over the axes of a mesh, for one operator: more take seconds an operator, and their edges gigabytes."""


def enumerate_strategies(
    splits: Sequence[Split],
    input_shapes: Sequence[tuple[int, ...]],
    output_shapes: Sequence[tuple[int, ...]],
    mesh_shape: Sequence[int],
    *,
    replicable: bool,
) -> tuple[Strategy, ...]:
    """All strategies on a mesh of any rank: the product of the splits over the axes, illegal ones left out.

    An operator that is not `replicable` (a heavy one) is left undivided along an axis only where nothing else is legal.
    Never empty: the fully replicated strategy is the last resort. OptionError when there would be too many.
    """
    whole = Split("-", 1, (REPLICATE,) * len(input_shapes), (REPLICATE,) * len(output_shapes), divides=False)
    shapes = (*input_shapes, *output_shapes)
    if (count := (len(splits) + 1) ** len(mesh_shape)) > MOST_COMBINATIONS:
        raise OptionError(
            "Too many strategies to enumerate",
            found=f"{count:,} combinations of {len(splits)} splits on a mesh of {len(mesh_shape)} axes",
            remedy="Merge axes of the mesh: two axes of 8 and 4 devices can be one of 32.",
        )  # fmt: skip
    found: dict[tuple[tuple[Spec, ...], tuple[Spec, ...]], Strategy] = {}
    for choice in itertools.product((whole, *splits), repeat=len(mesh_shape)):
        cut: dict[int, int] = {}
        for split, size in zip(choice, mesh_shape, strict=True):
            if split is not whole:
                cut[id(split)] = cut.get(id(split), 1) * size
        if any(split is not whole and split.divides and split.size % cut[id(split)] for split in choice):
            continue
        inputs = tuple(tuple(s.inputs[i] for s in choice) for i in range(len(input_shapes)))
        outputs = tuple(tuple(s.outputs[o] for s in choice) for o in range(len(output_shapes)))
        if not all(is_legal(spec, shape, mesh_shape) for spec, shape in zip((*inputs, *outputs), shapes, strict=True)):
            continue
        if _collides(choice, mesh_shape):
            continue
        share = 1.0 / math.prod(size for split, size in zip(choice, mesh_shape, strict=True) if split.divides)
        sync = tuple(s.sync_bytes for s in choice)
        strategy = Strategy(tuple(s.factor for s in choice), inputs, outputs, share, sync)
        found.setdefault((inputs, outputs), strategy)
    strategies = tuple(found.values())
    if not replicable:
        least = min(s.work_share for s in strategies)
        undivided = {s for s in strategies if "-" in s.factors or s.work_share > least}
        strategies = tuple(s for s in strategies if s not in undivided) or tuple(
            s for s in strategies if s.work_share == least
        )
    return strategies


def _collides(choice: Sequence[Split], mesh_shape: Sequence[int]) -> bool:
    """True when two different factors would cut the same dim of one tensor: their blocks do not nest."""
    for tensor in range(len(choice[0].inputs) + len(choice[0].outputs) if choice else 0):
        owner: dict[int, str] = {}
        for split in choice:
            placement = (*split.inputs, *split.outputs)[tensor]
            if placement >= 0 and owner.setdefault(placement, split.factor) != split.factor:
                return True
    return False
