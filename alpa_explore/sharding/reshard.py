"""Resharding steps: the single collectives that change one placement of a spec.

This module enumerates the steps; `cost.resharding` prices them and finds the cheapest sequence. Of several axes that
shard one dim only the innermost can be gathered, sliced or moved: otherwise blocks would not stay contiguous.
"""

import enum
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from alpa_explore.sharding.spec import PARTIAL, REPLICATE, Spec


class StepKind(enum.Enum):
    """A collective, or a local slice."""

    ALL_GATHER = "all-gather"
    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    RING = "ring"
    """Every device's block visits all others, in as many steps from neighbour to neighbour; inside operators alone."""
    PERMUTE = "permute"
    """Blocks change places, each device sending and receiving once; inside operators alone."""
    SLICE = "slice"


@dataclass(frozen=True, slots=True)
class Step:
    """One collective, or slice, along one mesh axis."""

    kind: StepKind
    axis: int
    source: Spec
    target: Spec


def steps_between(specs: tuple[Spec, ...], rank: int) -> tuple[Step, ...]:
    """Every single step between the legal specs of a tensor of this rank."""
    legal = frozenset(specs)
    return tuple(step for spec in specs for step in steps_from(spec, rank, legal))


def steps_from(spec: Spec, rank: int, legal: Collection[Spec]) -> Iterator[Step]:
    """Every single step from `spec` to one of the `legal` specs of the tensor."""
    for axis, placement in enumerate(spec):
        for target, kind in _moves(placement, rank):
            # Adding or removing an axis acts inside each block only if no inner axis shards the same dim.
            inner = spec[axis + 1 :]
            if (placement >= 0 and placement in inner) or (target >= 0 and target in inner):
                continue
            changed = (*spec[:axis], target, *inner)
            if changed in legal:
                yield Step(kind, axis, spec, changed)


def _moves(placement: int, rank: int) -> Iterator[tuple[int, StepKind]]:
    if placement == PARTIAL:
        yield REPLICATE, StepKind.ALL_REDUCE
        yield from ((dim, StepKind.REDUCE_SCATTER) for dim in range(rank))
    elif placement == REPLICATE:
        yield from ((dim, StepKind.SLICE) for dim in range(rank))
    else:
        yield REPLICATE, StepKind.ALL_GATHER
        yield from ((dim, StepKind.ALL_TO_ALL) for dim in range(rank) if dim != placement)
