"""Seconds of kernels that were timed on the device (`Device.measured`), in place of those of the formulas.

A kernel is known by its name: the operator with its arguments, and the local shapes and dtypes of what it reads and
makes. One that was timed takes the measured seconds. One between two timed sizes of its family takes those of the
formulas times a factor, measured over formula, that is interpolated in the logarithm of the size. A kernel that
torch.compile makes of several operators is timed as one, and gives each of them its own factor. Beyond the timed
sizes, and in families that were not timed, it is the mean factor of what was timed of the same kind and dtype: else
kernels would look fast because nobody timed them, and plans would be made of those. A strategy whose kernel
cannot run on the device, for lack of memory or of an implementation, has no price, unless none of its operator runs.
A view takes the measured seconds of any view, none where the store has none.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from hashlib import sha256
from statistics import geometric_mean
from typing import NamedTuple

from alpa_explore.cluster import Device
from alpa_explore.cluster.kernel_store import MeasuredKernel
from alpa_explore.cost import tuning
from alpa_explore.cost.fusion import NEVER_FUSED
from alpa_explore.cost.kernels import Kernel, KernelKind, KernelName, local_shapes
from alpa_explore.graph import Operator, Phase, Tensor
from alpa_explore.graph.counts import is_matrix_product, is_view, packet
from alpa_explore.graph.operator import operator_signature
from alpa_explore.numerics.arrays import Floats
from alpa_explore.sharding.strategy import Strategy

VIEW = KernelName("view", "view")
"""The name of every operator that moves no data. It is timed on a CPU alone: there the host that calls it is the
device."""
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

    None where it is part of a larger kernel that is not timed, or computes in another precision than that of its
    tensors. The step of an optimizer is named by how the software runs it. One that exchanges something has a
    name that is not timed: its seconds follow from others of its family.
    """
    if device.measured is None:
        return None
    if operator.fused is not None and operator.low is None:
        family = f"compiled {operator.fused.name}"
        share = strategy.work_share
        return KernelName(f"{family} {share:.4g}", family, operator.fused.bytes * share)
    if is_view(operator.kind) and not operator.flops and not operator.bytes_accessed:
        return None if device.software.fuses_pointwise else VIEW  # compiled code calls no views
    if operator.phase is Phase.UPDATE and device.software.states == "8-bit":
        return None
    is_part = operator.joined is not None or not operator.launches or not operator.stored
    kind = packet(operator.kind)
    is_fused = device.software.fuses_pointwise and not (is_matrix_product(operator.kind) or kind in NEVER_FUSED)
    if is_part or (is_fused and operator.phase is not Phase.UPDATE) or operator.low is not None:
        return None
    places = dict(zip((*operator.inputs, *operator.outputs), (*inputs, *outputs), strict=True))
    _, arguments, keywords, *_ = operator_signature(operator, places)
    digest = sha256(repr((arguments, keywords)).encode()).hexdigest()[:12]
    dtypes = ",".join(f"{t.dtype}{len(t.shape)}" for t in (*inputs, *outputs))
    how = f" {device.software.step}" if operator.kind.startswith("optimizer.") else ""
    family = f"{operator.kind}{how} {dtypes} {digest}"
    local = local_shapes(inputs, outputs, strategy, mesh_shape)
    shapes = " -> ".join(",".join("x".join(map(str, shape)) or "1" for shape in side) for side in local)
    exchanging = " and exchanges" if any(strategy.exchanges) else ""
    return KernelName(f"{family} {shapes}{exchanging}", family)


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
            corrected[place] = factors.together.get(timed.name, 0.0) * corrected[place] or timed.seconds
            continue
        size = kernel.flops if kernel.matrix else kernel.name.together or kernel.bytes_accessed
        between = _between(*factors.families.get(kernel.name.family, ((), ())), size)
        if between is None:
            between = factors.classes.get((kernel.matrix, kernel.dtype, kernel.kind), 1.0)
        corrected[place] *= between
    return corrected


def is_measured(device: Device, kernel: Kernel) -> bool:
    """Whether the kernel itself was timed on the device."""
    return device.measured is not None and kernel.name is not None and kernel.name.name in device.measured.kernels


def can_run(device: Device, kernel: Kernel) -> bool:
    """False where it was tried on the device and failed."""
    return device.measured is None or kernel.name is None or kernel.name.name not in device.measured.failed


def least_factor(device: Device, formulas: Formulas) -> float:
    """The least of measured seconds over those of the formulas, at most 1: lower bounds that follow from the formulas
    hold times this factor."""
    return _factors(device, formulas).least


class _Factors(NamedTuple):
    """Measured seconds over those of the formulas."""

    together: Mapping[str, float]
    """Name of a kernel of several operators -> its factor."""
    families: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    """Family -> (sizes ascending, factors); of kernels of equal size, as products of other shapes, the mean."""
    classes: Mapping[tuple[bool, str, KernelKind], float]
    """(on matrix units, dtype, kind) -> the mean of its families; of products and memory-bound kernels, which are of
    many sorts, of `tuning.TYPICAL_FAMILIES` or more."""
    least: float


# Memo of a pure function.
@lru_cache(maxsize=32)
def _factors(device: Device, formulas: Formulas) -> _Factors:
    assert device.measured is not None, "a device with measured kernels"
    together: dict[str, float] = {}
    families: dict[str, tuple[Sequence[float], Sequence[float]]] = {}
    classes: dict[tuple[bool, str, KernelKind], list[float]] = {}
    least = 1.0
    for family, timed in device.measured.families.items():
        predicted = formulas(device, [_as_kernel(kernel) for kernel in timed]).tolist()
        of_size: dict[float, list[float]] = {}
        for kernel, seconds in zip(timed, predicted, strict=True):
            if seconds > 0:
                of_size.setdefault(kernel.size, []).append(kernel.seconds / seconds)
                least = min(least, of_size[kernel.size][-1])
                if family.startswith("compiled "):
                    together[kernel.name] = of_size[kernel.size][-1]
        if of_size:
            means = tuple(geometric_mean(factors) for factors in of_size.values())
            families[family] = tuple(of_size), means
            one = timed[0]
            classes.setdefault((one.matrix, one.dtype, KernelKind(one.kind)), []).append(geometric_mean(means))
    many = (KernelKind.PRODUCT, KernelKind.MEMORY)
    typical = {
        c: geometric_mean(of) for c, of in classes.items() if c[2] not in many or len(of) >= tuning.TYPICAL_FAMILIES
    }
    return _Factors(together, families, typical, least)


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


def _between(sizes: Sequence[float], factors: Sequence[float], size: float) -> float | None:
    """The factor at a size between two timed ones; None beyond them."""
    above = bisect_left(sizes, size)
    if above == len(sizes) or size < sizes[0]:
        return None
    if sizes[above] == size:
        return factors[above]
    low, high = sizes[above - 1], sizes[above]
    share = math.log(size / low) / math.log(high / low)
    return math.exp((1 - share) * math.log(factors[above - 1]) + share * math.log(factors[above]))
