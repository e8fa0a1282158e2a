"""What a complete choice of a stage costs: figures that add up over its nodes and edges, and the totals made of them.

Solvers minimise sums (`StageProblem.at`): a collective there hides behind the product beside it. The seconds that
totals state are those of `cost.stage`, in which the stored collectives of a pass hide behind all of it, and the
slower of host and device sets the pace. A forward pass that is computed again is part of the backward pass.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from alpa_explore.cluster import Software
from alpa_explore.cost.model import CostModel
from alpa_explore.cost.stage import OnceParts, PassParts, gathered_bytes, once_seconds, passes_seconds
from alpa_explore.intra_op.stage.stage_graph import StageGraph


class Figure(enum.IntEnum):
    """What is added up, in seconds and bytes of one device; exposed seconds as on the edges of the problem."""

    MICROBATCH = 0
    """Exposed seconds of a microbatch."""
    ITERATION = 1
    """Exposed seconds of what is paid once an iteration."""
    WEIGHT_BYTES = 2
    ACTIVATION_BYTES = 3
    FORWARD = 4
    """Of MICROBATCH those of the forward pass."""
    LAUNCHING_FORWARD = 5
    """Host seconds to launch the collectives of the forward pass."""
    LAUNCHING_BACKWARD = 6
    STORED_FORWARD = 7
    """Collectives of stored weights in the forward pass, with nothing hidden."""
    STORED_BACKWARD = 8
    EXPOSED_FORWARD = 9
    """Of FORWARD those of stored weights."""
    EXPOSED_BACKWARD = 10
    SUMMED = 11
    """Sums of gradients, with nothing hidden."""
    GATHERED = 12
    """Gathers of updated weights, with nothing hidden."""
    EXPOSED_ONCE = 13
    """Of ITERATION those of both."""
    GATHERED_BYTES = 14
    """Of copies of weights that are stored in shards, which the forward pass gathers."""
    BESIDE_BYTES = 15
    """What the software keeps beside weights and activations: buffers of gradients, the loss of the last microbatch."""


FIGURES = len(Figure)
EXPOSED = {
    Figure.STORED_FORWARD: Figure.EXPOSED_FORWARD,
    Figure.STORED_BACKWARD: Figure.EXPOSED_BACKWARD,
    Figure.SUMMED: Figure.EXPOSED_ONCE,
    Figure.GATHERED: Figure.EXPOSED_ONCE,
}
"""Figure of stored weights with nothing hidden -> the one of what is exposed on the edges of the problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTotals:
    """Costs of one complete choice, per device."""

    microbatch_seconds: float
    """Forward and backward, as solvers add it up: kernels and exposed collectives of the device, as if the host were
    never the limit."""
    iteration_seconds: float
    """What is paid once an iteration: gradient sync, update."""
    weight_bytes: float
    """Weights, gradients and optimizer state."""
    activation_bytes: float
    """Held for the backward pass of one microbatch."""
    workspace_bytes: float
    """Peak of temporary tensors; gathered weights of as many blocks as the software has at once; what it keeps beside
    them, and the memory that it keeps back."""
    paced_seconds: float = -1.0
    """A microbatch as it is predicted; by default as solvers add it up."""

    def __post_init__(self) -> None:
        if self.paced_seconds < 0:
            object.__setattr__(self, "paced_seconds", self.microbatch_seconds)

    def latency_seconds(self, num_microbatches: int) -> float:
        """t of Eq. 2: a microbatch, and its share of what is paid once an iteration."""
        return self.paced_seconds + self.iteration_seconds / num_microbatches

    def latency_at(self, inverse_b: float) -> float:
        """t of Eq. 2 at 1/B."""
        return self.paced_seconds + self.iteration_seconds * inverse_b

    def device_latency_at(self, inverse_b: float) -> float:
        """The same as solvers add it up: what `StageProblem.at` minimises."""
        return self.microbatch_seconds + self.iteration_seconds * inverse_b

    def held_bytes(self, microbatches_held: float) -> float:
        """What a device keeps between tasks: weights, and the activations of the microbatches that it holds."""
        return self.weight_bytes + microbatches_held * self.activation_bytes

    def peak_bytes(self, microbatches_held: float, turns: int = 1) -> float:
        """Peak memory of a device that holds the activations of so many microbatches and runs `turns` stages like this
        one."""
        return turns * self.held_bytes(microbatches_held) + self.workspace_bytes


def totals_of(figures: Sequence[float], workspace_bytes: float, stage: StageGraph, model: CostModel) -> StageTotals:
    """The totals of a choice with these `Figure`s."""
    software = model.device.software
    if model.device.overlaps_given:  # then what hides is what the user says, edge by edge
        software = replace(software, gradient_sync="exposed")
    forward_host, backward_host = host_seconds(stage, software)
    forward = PassParts(
        device=figures[Figure.FORWARD] - figures[Figure.EXPOSED_FORWARD],
        host=forward_host + figures[Figure.LAUNCHING_FORWARD],
        stored=figures[Figure.STORED_FORWARD],
    )
    backward = PassParts(
        device=figures[Figure.MICROBATCH] - figures[Figure.FORWARD] - figures[Figure.EXPOSED_BACKWARD],
        host=backward_host + figures[Figure.LAUNCHING_BACKWARD],
        stored=figures[Figure.STORED_BACKWARD],
    )
    once = OnceParts(
        summed=figures[Figure.SUMMED],
        gathered=figures[Figure.GATHERED],
        update=figures[Figure.ITERATION] - figures[Figure.EXPOSED_ONCE],
    )
    seconds = passes_seconds(forward, backward, software)
    beside = figures[Figure.BESIDE_BYTES]
    if figures[Figure.GATHERED_BYTES]:
        beside += gathered_bytes(figures[Figure.GATHERED_BYTES], stage.blocks, model.device.software)
    return StageTotals(
        microbatch_seconds=figures[Figure.MICROBATCH],
        iteration_seconds=once_seconds(once, software, forward=seconds[0], backward=seconds[1]),
        weight_bytes=figures[Figure.WEIGHT_BYTES],
        activation_bytes=figures[Figure.ACTIVATION_BYTES],
        workspace_bytes=workspace_bytes + beside,
        paced_seconds=(sum(seconds) + software.microbatch_seconds) * model.mesh.stragglers,
    )


def host_seconds(stage: StageGraph, software: Software) -> tuple[float, float]:
    """Host seconds to launch the kernels of the forward and of the backward pass of one microbatch, in which gradients
    are added to the accumulated ones and parts of the forward pass are computed again."""
    forward, backward, again = stage.launches
    if software.accumulate_bytes and not software.accumulate_in_product:
        backward += len(stage.parameters)
    each = software.forward_launch_seconds
    return forward * each, backward * software.backward_launch_seconds + again * each
