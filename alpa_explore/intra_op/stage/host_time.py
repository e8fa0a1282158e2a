"""The seconds of a microbatch of a stage at the pace of the slower of host and device.

What the host launches is a constant of the operators of a stage, so the fastest choice for the device is the fastest
choice. Launches of collectives are not counted: they depend on the choice.
"""

from __future__ import annotations

from alpa_explore.cluster import Software
from alpa_explore.cost.host import pace
from alpa_explore.intra_op.stage.stage_graph import StageGraph


def paced_seconds(stage: StageGraph, software: Software, device_seconds: float) -> float:
    """Seconds of a microbatch in which the device computes for `device_seconds`."""
    if not (software.forward_launch_seconds or software.backward_launch_seconds):
        return device_seconds + software.microbatch_seconds
    return pace(host_seconds(stage, software), device_seconds, software.pace_sharpness) + software.microbatch_seconds


def host_seconds(stage: StageGraph, software: Software) -> float:
    """Host seconds to launch the kernels of one microbatch."""
    forward, backward = stage.launches
    return forward * software.forward_launch_seconds + backward * software.backward_launch_seconds
