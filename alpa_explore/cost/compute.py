"""Seconds that one device computes: a roofline on the local shape, an efficiency that grows with size, a launch."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from alpa_explore.cluster import Device


def compute_seconds(device: Device, *, flops: float, bytes_accessed: float, dtype: str, matrix: bool) -> float:
    """Time of one kernel with these local counts; 0 for a view (no bytes, no flops).

    launch + max( (flops + half) / (peak × efficiency), bytes / (bandwidth × efficiency) ): with `half_efficiency_flops`
    = half, a matrix product of `half` flops reaches half of the efficiency of a large one. Operators without matrix
    units run at the fp32 peak. A device with a measured curve takes the seconds of the curve instead of that formula.
    """
    if flops == 0 and bytes_accessed == 0:
        return 0.0
    if matrix and device.matmul_curve:
        arithmetic = curve_seconds(device.matmul_curve, flops, device.peak(dtype))
    elif matrix:
        arithmetic = (flops + device.half_efficiency_flops) / (device.peak(dtype) * device.matmul_efficiency)
    else:
        arithmetic = flops / device.peak("float32")
    return device.launch_seconds + max(
        arithmetic, bytes_accessed / (device.memory_bandwidth * device.memory_efficiency)
    )


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
