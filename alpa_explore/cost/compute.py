"""Seconds that one device computes: a roofline on the local shape, an efficiency that grows with size, a launch."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from alpa_explore.cluster import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What one device does of an operator."""

    flops: float
    bytes_accessed: float
    dtype: str
    matrix: bool
    """Whether it runs on matrix units."""

    @property
    def is_view(self) -> bool:
        """No bytes, no flops: it takes no time."""
        return self.flops == 0 and self.bytes_accessed == 0


def compute_seconds(device: Device, kernel: Kernel) -> float:
    """Time of one kernel; 0 for a view.

    launch + max( (flops + half) / (peak × efficiency), bytes / (bandwidth × efficiency) ): with `half_efficiency_flops`
    = half, a matrix product of `half` flops reaches half of the efficiency of a large one. Operators without matrix
    units run at the fp32 peak. A device with a measured curve takes the seconds of the curve instead of that formula.
    """
    if kernel.is_view:
        return 0.0
    return device.launch_seconds + max(arithmetic_seconds(device, kernel), memory_seconds(device, kernel))


def least_seconds(device: Device, kernel: Kernel) -> float:
    """What no kernel takes less than that has as many FLOPs and bytes or more: on a measured curve a larger product may
    be the faster one."""
    if not (kernel.matrix and device.matmul_curve):
        return compute_seconds(device, kernel)
    peak = device.peak(kernel.dtype)
    larger = [flops / (peak * share) for flops, share in device.matmul_curve if flops >= kernel.flops]
    arithmetic = min([arithmetic_seconds(device, kernel), *larger])
    return device.launch_seconds + max(arithmetic, memory_seconds(device, kernel))


def arithmetic_seconds(device: Device, kernel: Kernel) -> float:
    """What its FLOPs take."""
    if not kernel.matrix:
        return kernel.flops / device.peak("float32")
    peak = device.peak(kernel.dtype)
    if device.matmul_curve:
        return curve_seconds(device.matmul_curve, kernel.flops, peak)
    return (kernel.flops + device.half_efficiency_flops) / (peak * device.matmul_efficiency)


def memory_seconds(device: Device, kernel: Kernel) -> float:
    """What its bytes take."""
    return kernel.bytes_accessed / (device.memory_bandwidth * device.memory_efficiency)


def curve_seconds(curve: Sequence[tuple[float, float]], flops: float, peak: float) -> float:
    """Seconds of a matrix product on a measured curve of (FLOPs, share of the peak).

    Straight lines between the points, in logarithms of FLOPs and seconds. Below the first point a product takes no less
    than that one; above the last the share stays.
    """
    above = bisect_right(curve, (flops, math.inf))
    if above == 0:
        return curve[0][0] / (peak * curve[0][1])
    if above == len(curve):
        return flops / (peak * curve[-1][1])
    (x0, share0), (x1, share1) = curve[above - 1], curve[above]
    t0, t1 = x0 / (peak * share0), x1 / (peak * share1)
    return float(t0 * (t1 / t0) ** (math.log(flops / x0) / math.log(x1 / x0)))
