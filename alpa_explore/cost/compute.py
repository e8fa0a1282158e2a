"""Seconds of one kernel on one device: a roofline on the local shape, with launch cost and size-dependent efficiency.

Roofline: Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance Model", CACM 52(4), 2009. The
figures of a device come from its data sheet or from measurements (`cluster.presets`, `alpa-explore calibrate`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from alpa_explore.cluster import Device
from alpa_explore.cost.kernel_seconds import KernelTable, table_seconds
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.cost.measured import least_factor, with_measured
from alpa_explore.numerics.arrays import Floats

AnyFloat = TypeVar("AnyFloat", float, Floats)


def compute_seconds(device: Device, kernel: Kernel) -> float:
    """Time of one kernel; 0 for a view.

    launch + max( (FLOPs + half) / (peak × efficiency), bytes / (bandwidth × efficiency) ), where `half` is
    `half_efficiency_flops`: a matrix product of `half` FLOPs reaches half of the efficiency of a large one. Operators
    that do not use matrix units run at the fp32 peak. For a device with a measured curve the first argument of the
    maximum is read from the curve instead; one with kernel figures has the formulas of `kernel_seconds`, and one with
    timed kernels their seconds (`measured`). Kernels in sequence (`steps`) take the sum of their times.
    """
    return float(kernels_seconds(device, [kernel])[0])


def _by_roofline(device: Device, kernel: Kernel) -> float:
    if kernel.is_view:
        return 0.0
    one = _of_one_step(kernel)
    return kernel.steps * (device.launch_seconds + max(arithmetic_seconds(device, one), memory_seconds(device, one)))


def adding_seconds(device: Device, gradient_bytes: AnyFloat, element_bytes: int, tensors: float = 1.0) -> AnyFloat:
    """Seconds to add so many bytes of gradients, in so many `tensors` and elements of `element_bytes`, to accumulated
    ones; of the type and shape of `gradient_bytes`. A figure of the software is of bytes alone: the host counts what it
    launches (`intra_op.stage.stage_totals.host_seconds`)."""
    software = device.software
    # Without a figure of the software: two tensors are read and one is written.
    moved = (software.accumulate_bytes / element_bytes or 3.0) * gradient_bytes * software.traffic_factor
    launched = 0.0 if software.accumulate_bytes else device.launch_seconds
    return tensors * launched + moved / (device.memory_bandwidth * device.memory_efficiency)


def kernels_seconds(device: Device, kernels: Sequence[Kernel]) -> Floats:
    """`compute_seconds` of many kernels, shape [kernels]."""
    seconds = formula_seconds(device, kernels)
    return seconds if device.measured is None else with_measured(device, kernels, seconds, formula_seconds)


def formula_seconds(device: Device, kernels: Sequence[Kernel]) -> Floats:
    """The same by the formulas alone, without timed kernels."""
    if device.kernels is not None:
        return table_seconds(device, KernelTable.of(kernels))
    return np.array([_by_roofline(device, kernel) for kernel in kernels], dtype=np.float64)


def least_seconds(device: Device, kernels: Sequence[Kernel]) -> Floats:
    """For each kernel a lower bound on the seconds of every one with at least its FLOPs and bytes, shape [kernels].

    It equals `compute_seconds` unless the device has a measured curve, on which a larger product may be faster, or
    timed kernels, of which the one that is fastest beside its formula lowers all bounds.
    """
    if device.measured is not None:
        return least_factor(device, formula_seconds) * least_seconds(replace(device, measured=None), kernels)
    if device.kernels is not None or not device.matmul_curve:
        return formula_seconds(device, kernels)
    return np.array([_least_by_curve(device, k) if k.matrix else _by_roofline(device, k) for k in kernels])


def _least_by_curve(device: Device, kernel: Kernel) -> float:
    one, peak = _of_one_step(kernel), device.peak(kernel.dtype)
    larger = [flops / (peak * share) for flops, share in device.matmul_curve if flops >= one.flops]
    arithmetic = min([arithmetic_seconds(device, one), *larger])
    return kernel.steps * (device.launch_seconds + max(arithmetic, memory_seconds(device, one)))


def _of_one_step(kernel: Kernel) -> Kernel:
    if kernel.steps == 1:
        return kernel
    return replace(
        kernel, flops=kernel.flops / kernel.steps, bytes_accessed=kernel.bytes_accessed / kernel.steps, steps=1
    )


def arithmetic_seconds(device: Device, kernel: Kernel) -> float:
    """Seconds for the FLOPs of the kernel alone."""
    if not kernel.matrix:
        return kernel.flops / device.peak("float32")
    peak = device.peak(kernel.dtype)
    if device.matmul_curve:
        return curve_seconds(device.matmul_curve, kernel.flops, peak)
    return (kernel.flops + device.half_efficiency_flops) / (peak * device.matmul_efficiency)


def memory_seconds(device: Device, kernel: Kernel) -> float:
    """Seconds for the memory traffic of the kernel alone, pointwise kernels with that of the software."""
    pointwise = kernel.kind is KernelKind.MEMORY and not kernel.matrix
    traffic = kernel.bytes_accessed * (device.software.traffic_factor if pointwise else 1.0)
    return traffic / (device.memory_bandwidth * device.memory_efficiency)


def curve_seconds(curve: Sequence[tuple[float, float]], flops: float, peak: float) -> float:
    """Seconds of a matrix product on a measured curve of (FLOPs, share of the peak).

    Linear interpolation between the points in log(FLOPs) and log(seconds). Below the first point the seconds are those
    of the first point; above the last the share of the peak is that of the last.
    """
    above = bisect_right(curve, (flops, math.inf))
    if above == 0:
        return curve[0][0] / (peak * curve[0][1])
    if above == len(curve):
        return flops / (peak * curve[-1][1])
    (x0, share0), (x1, share1) = curve[above - 1], curve[above]
    t0, t1 = x0 / (peak * share0), x1 / (peak * share1)
    return float(t0 * (t1 / t0) ** (math.log(flops / x0) / math.log(x1 / x0)))
