"""The seconds of the tasks and sends of each stage, and the bytes it holds; which links the sends use."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from alpa_explore.schedules.task import Action

_PARTS = {Action.FORWARD: (0,), Action.BACKWARD: (1, 2), Action.BACKWARD_INPUT: (1,), Action.BACKWARD_WEIGHT: (2,)}
"""Which of forward, backward to inputs and backward to weights an action runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Seconds of one stage for one microbatch, and bytes on one device."""

    forward_seconds: float
    backward_input_seconds: float
    """The gradient with respect to the input of the stage (I)."""
    backward_weight_seconds: float
    """The rest of the backward pass, the gradients of the weights (W)."""
    update_seconds: float = 0.0
    """Gradient sync and optimizer step, once an iteration."""
    collective_fraction: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Share of the forward, backward-input and backward-weight seconds that is spent in collectives."""
    stored_seconds: tuple[tuple[float, float], ...] = ((0.0, 0.0),) * 3
    """For the same three parts the seconds of gathering stored weights, and of scattering their gradients: (exposed,
    which are part of the above; hidden behind computing)."""
    send_forward_seconds: float = 0.0
    """Of its output to the next stage."""
    send_backward_seconds: float = 0.0
    """Of the gradient of its input to the previous stage."""
    send_wait_seconds: tuple[float, float] = (0.0, 0.0)
    """Of the forward and of the backward-input seconds: the stage itself waits for sends, and computes nothing."""
    weight_bytes: float = 0.0
    gradient_bytes: float = 0.0
    optimizer_bytes: float = 0.0
    activation_bytes: float = 0.0
    """Held from the forward to the end of the backward pass of one microbatch."""
    workspace_bytes: float = 0.0
    """Peak of temporary tensors while a task runs, in addition to the above."""

    @property
    def backward_seconds(self) -> float:
        """Seconds of the whole backward pass."""
        return self.backward_input_seconds + self.backward_weight_seconds

    @property
    def microbatch_seconds(self) -> float:
        """Seconds of forward and backward pass."""
        return self.forward_seconds + self.backward_seconds

    @property
    def resident_bytes(self) -> float:
        """Bytes that are held all the time."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def thirds(self) -> tuple[float, float, float]:
        """Seconds of the forward pass, of the backward pass to the input and of that to the weights."""
        return self.forward_seconds, self.backward_input_seconds, self.backward_weight_seconds

    def seconds(self, action: Action) -> float:
        """Seconds of one task."""
        if action is Action.UPDATE:
            return self.update_seconds
        return sum((self.thirds[part] for part in _PARTS.get(action, ())), 0.0)

    def collective_seconds(self, action: Action) -> float:
        """Seconds of one task that are spent in collectives."""
        return sum((self.collective_fraction[part] * self.thirds[part] for part in _PARTS.get(action, ())), 0.0)

    def stored_of(self, action: Action) -> tuple[float, float]:
        """Seconds of one task that gather stored weights and scatter their gradients: (exposed, hidden)."""
        chosen = [self.stored_seconds[part] for part in _PARTS.get(action, ())]
        return sum(exposed for exposed, _ in chosen), sum(hidden for _, hidden in chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The links that carry the sends of each stage; equal numbers share a link. −1: no link, no time."""

    names: tuple[str, ...]
    forward: tuple[int, ...]
    """For each stage the link for its output."""
    backward: tuple[int, ...]
    """For each stage the link for the gradient of its input."""


def links_between(submesh_of_stage: Sequence[int], nodes: Sequence[Sequence[int]] = ()) -> Links:
    """The links of stages on these submeshes: for every ordered pair of submeshes that communicate one of its own, or,
    with the `nodes` of each submesh, one for all pairs between the same nodes; none between stages on one submesh."""
    numbers: dict[str, int] = {}

    def name(a: int, b: int) -> str:
        if not nodes:
            return f"{a} → {b}"
        if nodes[a] == nodes[b]:
            return f"submesh {a} → {b}"
        return " → ".join("node " + "+".join(map(str, of)) for of in (nodes[a], nodes[b]))

    def link(source: int, target: int) -> int:
        return -1 if source == target else numbers.setdefault(name(source, target), len(numbers))

    both = [(link(a, b), link(b, a)) for a, b in pairwise(submesh_of_stage)]
    forward, backward = (*(there for there, _ in both), -1), (-1, *(back for _, back in both))
    return Links(names=tuple(numbers), forward=forward, backward=backward)


def with_sends(times: Sequence[StageTimes], sends: Sequence[tuple[float, float]], waits: float) -> list[StageTimes]:
    """`times` with the seconds of sends (output forward, gradient backward): a stage waits for the share `waits` of
    what it sends and receives; the rest runs on the links, beside computation."""
    made = []
    for t, (ahead, back) in zip(times, sends, strict=True):
        each = waits * (ahead + back)  # forward it receives what `back` answers, and sends `ahead`; then the reverse
        longer = (t.forward_seconds + each, t.backward_input_seconds + each, t.backward_weight_seconds)
        fractions = tuple(
            share * short / long if long else share
            for share, short, long in zip(t.collective_fraction, t.thirds, longer, strict=True)
        )
        made.append(
            replace(
                t,
                forward_seconds=longer[0],
                backward_input_seconds=longer[1],
                collective_fraction=(fractions[0], fractions[1], fractions[2]),
                send_wait_seconds=(each, each),
                send_forward_seconds=(1.0 - waits) * ahead,
                send_backward_seconds=(1.0 - waits) * back,
            )
        )
    return made
