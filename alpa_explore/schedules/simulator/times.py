"""How long the tasks of each stage take, what its sends take, and what it holds in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from alpa_explore.schedules.task import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """One stage; seconds of one microbatch, bytes of one device."""

    forward_seconds: float
    backward_input_seconds: float
    """Up to the gradient of what the stage received."""
    backward_weight_seconds: float
    """The rest of the backward pass."""
    update_seconds: float = 0.0
    """Gradient sync and optimizer step, once an iteration."""
    collective_fraction: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Share of each of the three backward and forward times (in the order above) that is spent in collectives."""
    send_forward_seconds: float = 0.0
    """Its output to the next stage."""
    send_backward_seconds: float = 0.0
    """The gradient of its input to the stage before."""
    weight_bytes: float = 0.0
    gradient_bytes: float = 0.0
    optimizer_bytes: float = 0.0
    activation_bytes: float = 0.0
    """Held from the forward to the end of the backward pass of one microbatch."""
    workspace_bytes: float = 0.0
    """The peak beside these while a task runs."""

    @property
    def backward_seconds(self) -> float:
        """The whole backward pass."""
        return self.backward_input_seconds + self.backward_weight_seconds

    @property
    def microbatch_seconds(self) -> float:
        """Forward and backward."""
        return self.forward_seconds + self.backward_seconds

    @property
    def resident_bytes(self) -> float:
        """What stays all the time."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes

    def seconds(self, action: Action) -> float:
        """Of one task."""
        return {
            Action.FORWARD: self.forward_seconds,
            Action.BACKWARD: self.backward_seconds,
            Action.BACKWARD_INPUT: self.backward_input_seconds,
            Action.BACKWARD_WEIGHT: self.backward_weight_seconds,
            Action.UPDATE: self.update_seconds,
            Action.SEND_GRADIENTS: 0.0,
            Action.RECEIVE_WEIGHTS: 0.0,
        }[action]

    def collective_seconds(self, action: Action) -> float:
        """The part of one task that is spent in collectives."""
        forward, of_input, of_weight = self.collective_fraction
        return {
            Action.FORWARD: forward * self.forward_seconds,
            Action.BACKWARD: of_input * self.backward_input_seconds + of_weight * self.backward_weight_seconds,
            Action.BACKWARD_INPUT: of_input * self.backward_input_seconds,
            Action.BACKWARD_WEIGHT: of_weight * self.backward_weight_seconds,
            Action.UPDATE: 0.0,
        }[action]


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Which link carries what a stage sends; stages that name the same link share it. −1: no link, no time."""

    names: tuple[str, ...]
    forward: tuple[int, ...]
    """For each stage the link of its output."""
    backward: tuple[int, ...]
    """For each stage the link of the gradient of its input."""


def own_links(submesh_of_stage: Sequence[int]) -> Links:
    """A link for every ordered pair of submeshes that talk; stages on one submesh need none."""
    found: dict[tuple[int, int], int] = {}

    def link(source: int, target: int) -> int:
        return -1 if source == target else found.setdefault((source, target), len(found))

    pairs = list(pairwise(submesh_of_stage))
    forward = (*(link(a, b) for a, b in pairs), -1)
    backward = (-1, *(link(b, a) for a, b in pairs))
    return Links(names=tuple(f"{a} → {b}" for a, b in found), forward=forward, backward=backward)
