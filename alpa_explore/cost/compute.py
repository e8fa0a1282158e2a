"""Seconds that one device computes: a roofline on the local shape, an efficiency that grows with size, a launch."""

from __future__ import annotations

from alpa_explore.cluster import Device


def compute_seconds(device: Device, *, flops: float, bytes_accessed: float, dtype: str, matrix: bool) -> float:
    """Time of one kernel with these local counts; 0 for a view (no bytes, no flops).

    launch + max( (flops + half) / (peak × efficiency), bytes / (bandwidth × efficiency) ): with `half_efficiency_flops`
    = half, a matrix product of `half` flops reaches half of the efficiency of a large one. Operators without matrix
    units run at the fp32 peak.
    """
    if flops == 0 and bytes_accessed == 0:
        return 0.0
    if matrix:
        arithmetic = (flops + device.half_efficiency_flops) / (device.peak(dtype) * device.matmul_efficiency)
    else:
        arithmetic = flops / device.peak("float32")
    return device.launch_seconds + max(
        arithmetic, bytes_accessed / (device.memory_bandwidth * device.memory_efficiency)
    )
