"""Work: what the devices of a stage do for one microbatch, without seconds.

It depends on the graph, the sharding and what the software fuses, never on fitted figures: it is computed once, and
priced for every device and software.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

from alpa_explore.cost.kernels import Kernel
from alpa_explore.sharding.reshard import StepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCall:
    """One collective among some devices."""

    kind: StepKind
    bytes: float
    """Of the larger tensor on one device."""
    ranks: int
    """Devices that take part."""
    stride: int
    """Devices from one of them to the next."""
    copies: int = 0
    """Of an all-to-all of the rows of experts: how many each token has in it; 0 for other collectives."""
    beside: int = -1
    """The kernel of its pass behind which software can hide it: the matrix product that made its input or reads its
    result; -1 where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassWork:
    """One pass (forward or backward) of a part of the model, on one device."""

    kernels: tuple[Kernel, ...] = ()
    collectives: tuple[CollectiveCall, ...] = ()
    launches: int = 0
    """Kernels that the host launches, collectives not counted."""
    expert_layers: int = 0
    """Layers of experts, each of which costs the host time of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """What a part computes again, holds and needs under one kind of recomputation."""

    again: PassWork
    """Of the forward pass what runs again."""
    held_bytes: float
    """Held for the backward pass of one microbatch."""
    workspace_bytes: float
    """Peak of its temporary tensors while a microbatch is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartWork:
    """A part of the model – the embedding, one block, the head with the loss – on one device."""

    forward: PassWork
    backward: PassWork
    recomputed: Mapping[str, Recomputed]
    """By the kind of recomputation of the blocks: 'none', 'selective' (the core of attention), 'full'."""
    parameters: float
    """Trainable elements on one device, those of experts apart."""
    parameter_tensors: int
    expert_parameters: float = 0.0
    """Trainable elements of the experts on one device; other devices have copies of them than of the rest."""


def in_sequence(first: PartWork, *others: PartWork) -> PartWork:
    """Several parts as one: forward in this order, backward in the reverse one."""
    return reduce(_joined, others, first)


def _joined(a: PartWork, b: PartWork) -> PartWork:
    return PartWork(
        forward=_one_after_the_other(a.forward, b.forward),
        backward=_one_after_the_other(b.backward, a.backward),
        recomputed={kind: _together(of_a, b.recomputed[kind]) for kind, of_a in a.recomputed.items()},
        parameters=a.parameters + b.parameters,
        parameter_tensors=a.parameter_tensors + b.parameter_tensors,
        expert_parameters=a.expert_parameters + b.expert_parameters,
    )


def _together(a: Recomputed, b: Recomputed) -> Recomputed:
    return Recomputed(
        again=_one_after_the_other(a.again, b.again),
        held_bytes=a.held_bytes + b.held_bytes,
        workspace_bytes=max(a.workspace_bytes, b.workspace_bytes),
    )


def _one_after_the_other(first: PassWork, second: PassWork) -> PassWork:
    shift = len(first.kernels)
    later = tuple(replace(c, beside=c.beside + shift) if c.beside >= 0 else c for c in second.collectives)
    return PassWork(
        kernels=first.kernels + second.kernels,
        collectives=first.collectives + later,
        launches=first.launches + second.launches,
        expert_layers=first.expert_layers + second.expert_layers,
    )
