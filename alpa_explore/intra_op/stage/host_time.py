"""The seconds of a microbatch of a stage at the pace of the slower of host and device.

The kernels that the host launches are a constant of the operators of a stage; the collectives depend on the choice.
What is optimised are device seconds: where the host sets the pace, a choice with fewer collectives may be faster.
"""

from __future__ import annotations

from dataclasses import dataclass

from alpa_explore.cluster import Software
from alpa_explore.cost.host import pace
from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op.stage.stage_graph import StageGraph


@dataclass(frozen=True, slots=True)
class PassSeconds:
    """Seconds of the two passes of a microbatch; recomputation counts as forward."""

    forward: float
    backward: float


def paced_seconds(stage: StageGraph, model: CostModel, device: PassSeconds, launching: PassSeconds) -> float:
    """Seconds of a microbatch in which the device computes for `device`, on the slowest of many nodes.

    `launching` are the host seconds to launch its collectives.
    """
    software = model.device.software
    seconds = device.forward + device.backward
    if software.forward_launch_seconds or software.backward_launch_seconds:
        host, sharpness = host_seconds(stage, software), software.pace_sharpness
        seconds = pace(host.forward + launching.forward, device.forward, sharpness)
        seconds += pace(host.backward + launching.backward, device.backward, sharpness)
    return (seconds + software.microbatch_seconds) * model.mesh.stragglers


def host_seconds(stage: StageGraph, software: Software) -> PassSeconds:
    """Host seconds to launch the kernels of one microbatch, with those that add gradients to the accumulated ones."""
    forward, backward = stage.launches
    if software.accumulate_bytes and not software.accumulate_in_product:
        backward += len(stage.parameters)
    return PassSeconds(forward * software.forward_launch_seconds, backward * software.backward_launch_seconds)
