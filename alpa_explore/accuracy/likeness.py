"""Which measured runs are like a case: what a prediction's error depends on, of a plan, a layout and a run.

A run is like a case where both have the same software, a precision of as many bits, experts or none, context
parallelism or none, FLOPs of a token of the same size, and a share of the time that is software's overhead of the
same kind; and the case is a decoder, as all measured runs are. Device and number of nodes are not asked for here:
`error_band` prefers runs with the same ones, and says where it has to take others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from alpa_explore.accuracy import tuning
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.cluster import Cluster

_RELEASES = frozenset({"megatron", "megatron-2025", "megatron-hybridep"})
"""Profiles of one software that differ for experts alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is predicted, as far as its error depends on it. None where it is not known: then it is not asked for."""

    software: str
    label: str
    """Of the software, for people."""
    device: str
    one_node: bool
    bits: int
    """Of an element in products."""
    decoder: bool = True
    """Whether it is a transformer over tokens and nothing else: every measured run is one."""
    experts: bool = False
    context: bool = False
    """Whether devices share sequences."""
    token_flops: float | None = None
    """Of a training step, which is 6 FLOPs for every parameter that a token meets, and attention."""
    overhead: float | None = None
    """Share of an iteration that the software adds to kernels and links (`overhead_share`)."""
    mfu: float | None = None

    @property
    def of_memory(self) -> Case:
        """The same for memory, which does not depend on the last two: figures of time."""
        return replace(self, overhead=None, mfu=None)

    @property
    def words(self) -> str:
        """'in 16 bits, with experts'."""
        kind = ", with experts" if self.experts else ""
        return f"in {self.bits} bits{kind}{', context parallel' if self.context else ''}"


def case(cluster: Cluster, *, precision: str, **known: Any) -> Case:
    """Of a model with tensors in `precision` on a cluster with its software; `known` are the other fields of `Case`."""
    software = cluster.software
    return Case(
        software=software.name,
        label=software.label,
        device=cluster.device.name,
        one_node=cluster.nodes == 1,
        bits=bits_of(software.low_precision or precision),
        **known,
    )


def overhead_share(cluster: Cluster, microbatches: int, seconds: float) -> float:
    """Share of an iteration of so many seconds that the software adds for every microbatch and once."""
    software = cluster.software
    return (software.iteration_seconds + microbatches * software.microbatch_seconds) / seconds


def bits_of(precision: str) -> int:
    """Bits of an element, by the name of a dtype, or of a precision as sources write it."""
    text = precision.lower()
    for bits, names in ((4, ("fp4", "float4")), (8, ("fp8", "float8")), (32, ("32",)), (64, ("64",))):
        if any(name in text for name in names):
            return bits
    return 16


def is_like(run: MeasuredRun, asked: Case) -> bool:
    """Whether a run is like a case, on whatever device."""
    same = (
        asked.decoder
        and _same_software(run.software, asked)
        and bits_of(run.precision) == asked.bits
        and run.experts == asked.experts
        and ((run.context or 1) > 1) == asked.context
    )
    return same and _of_size(run, asked) and _as_busy(run, asked)


def _same_software(software: str, asked: Case) -> bool:
    dense = not asked.experts and {software, asked.software} <= _RELEASES
    return software == asked.software or dense


def _of_size(run: MeasuredRun, asked: Case) -> bool:
    if asked.token_flops is None or run.token_flops is None:
        return True
    ratio = asked.token_flops / run.token_flops
    return 1 / tuning.OTHER_SIZE <= ratio <= tuning.OTHER_SIZE


def _as_busy(run: MeasuredRun, asked: Case) -> bool:
    """Whether both are limited by kernels and links, or both by the host."""
    if asked.mfu is not None and asked.mfu >= tuning.ENOUGH_MFU and run.mfu is not None and run.mfu < tuning.ENOUGH_MFU:
        return False
    if asked.overhead is None or run.overhead is None:
        return True
    much = tuning.MUCH_OVERHEAD
    return run.overhead >= much / 2 if asked.overhead >= much else run.overhead < much
