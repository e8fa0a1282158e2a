"""Seconds of kernels that were timed on the device (`Device.measured`), in place of those of the formulas.

A kernel is known by its name: the operator with its arguments, and the local shapes and dtypes of what it reads and
makes. One that was timed takes the measured seconds. One between two timed sizes of its family takes those of the
formulas times a factor, measured over formula, that is interpolated in the logarithm of the size. Beyond the timed
sizes, and of families that were not timed, the formulas hold.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache
from hashlib import sha256
from statistics import geometric_mean

from alpa_explore.cluster import Device
from alpa_explore.cluster.kernel_store import MeasuredKernel
from alpa_explore.cost.fusion import NEVER_FUSED
from alpa_explore.cost.kernels import Kernel, KernelKind, KernelName, local_shapes
from alpa_explore.graph import Operator, Phase, Tensor
from alpa_explore.graph.counts import is_matrix_product, packet
from alpa_explore.graph.operator import operator_signature
from alpa_explore.numerics.arrays import Floats
from alpa_explore.sharding.strategy import Strategy

Formulas = Callable[[Device, Sequence[Kernel]], Floats]


def kernel_name(
    device: Device,
    operator: Operator,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    strategy: Strategy,
    mesh_shape: tuple[int, ...],
) -> KernelName | None:
    """The name of what a device with timed kernels runs for an operator under a strategy.

    None where that is not the operator alone: it is part of a larger kernel, computes in another precision than that
    of its tensors, or exchanges something meanwhile. An optimizer step is priced by the bytes of all weights together.
    """
    is_part = operator.joined is not None or not operator.launches or not operator.stored
    kind = packet(operator.kind)
    is_fused = device.software.fuses_pointwise and not (is_matrix_product(operator.kind) or kind in NEVER_FUSED)
    if device.measured is None or is_part or is_fused or operator.low is not None:
        return None
    if operator.phase is Phase.UPDATE or any(strategy.exchanges):
        return None
    places = dict(zip((*operator.inputs, *operator.outputs), (*inputs, *outputs), strict=True))
    _, arguments, keywords, *_ = operator_signature(operator, places)
    digest = sha256(repr((arguments, keywords)).encode()).hexdigest()[:12]
    dtypes = ",".join(f"{t.dtype}{len(t.shape)}" for t in (*inputs, *outputs))
    family = f"{operator.kind} {dtypes} {digest}"
    local = local_shapes(inputs, outputs, strategy, mesh_shape)
    shapes = " -> ".join(",".join("x".join(map(str, shape)) or "1" for shape in side) for side in local)
    return KernelName(f"{family} {shapes}", family)


def measured_kernel(
    kernel: Kernel, name: KernelName, *, seconds: float, host_seconds: float, spread: float
) -> MeasuredKernel:
    """The entry of a store for a kernel that was timed."""
    work = {key: value for key, value in asdict(kernel).items() if key != "name"}
    return MeasuredKernel(
        **{**work, "kind": kernel.kind.value},
        name=name.name,
        family=name.family,
        seconds=seconds,
        host_seconds=host_seconds,
        spread=spread,
    )


def with_measured(device: Device, kernels: Sequence[Kernel], seconds: Floats, formulas: Formulas) -> Floats:
    """`seconds` of the formulas, corrected by what was measured on the device; shape [kernels]."""
    factors = _factors(device, formulas)
    store = device.measured
    assert store is not None, "a device with measured kernels"
    corrected = seconds.copy()
    for place, kernel in enumerate(kernels):
        if kernel.name is None:
            continue
        timed = store.kernels.get(kernel.name.name)
        if timed is not None:
            corrected[place] = timed.seconds
        elif (family := factors.get(kernel.name.family)) is not None:
            size = kernel.flops if kernel.matrix else kernel.bytes_accessed
            sizes, means, _ = family
            corrected[place] *= _between(sizes, means, size)
    return corrected


def is_measured(device: Device, kernel: Kernel) -> bool:
    """Whether the kernel itself was timed on the device."""
    return device.measured is not None and kernel.name is not None and kernel.name.name in device.measured.kernels


def least_factor(device: Device, formulas: Formulas) -> float:
    """The least of measured seconds over those of the formulas, at most 1: lower bounds that follow from the formulas
    hold times this factor."""
    return min((1.0, *(lowest for *_, lowest in _factors(device, formulas).values())))


Factors = dict[str, tuple[tuple[float, ...], tuple[float, ...], float]]


# Memo of a pure function.
@lru_cache(maxsize=32)
def _factors(device: Device, formulas: Formulas) -> Factors:
    """Family -> (sizes ascending, measured seconds over those of the formulas, the least of these). Of kernels of equal
    size, as products of other shapes, the mean counts between sizes, and each by itself for the least."""
    assert device.measured is not None, "a device with measured kernels"
    found: Factors = {}
    for family, timed in device.measured.families.items():
        predicted = formulas(device, [_as_kernel(kernel) for kernel in timed]).tolist()
        of_size: dict[float, list[float]] = {}
        for kernel, seconds in zip(timed, predicted, strict=True):
            if seconds > 0:
                of_size.setdefault(kernel.size, []).append(kernel.seconds / seconds)
        if of_size:
            means = tuple(geometric_mean(factors) for factors in of_size.values())
            found[family] = tuple(of_size), means, min(map(min, of_size.values()))
    return found


def _as_kernel(timed: MeasuredKernel) -> Kernel:
    return Kernel(
        flops=timed.flops,
        bytes_accessed=timed.bytes_accessed,
        dtype=timed.dtype,
        matrix=timed.matrix,
        kind=KernelKind(timed.kind),
        sizes=timed.sizes,
        steps=timed.steps,
    )


def _between(sizes: Sequence[float], factors: Sequence[float], size: float) -> float:
    """The factor at a size between two timed ones; 1 beyond them."""
    above = bisect_left(sizes, size)
    if above == len(sizes) or size < sizes[0]:
        return 1.0
    if sizes[above] == size:
        return factors[above]
    low, high = sizes[above - 1], sizes[above]
    share = math.log(size / low) / math.log(high / low)
    return math.exp((1 - share) * math.log(factors[above - 1]) + share * math.log(factors[above]))
