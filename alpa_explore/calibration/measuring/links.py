"""Time collectives and sends over message sizes and numbers of ranks; NCCL between GPUs, gloo between CPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from alpa_explore.calibration import tuning
from alpa_explore.calibration.measurements import GroupTime, Point
from alpa_explore.calibration.measuring.clock import Clock
from alpa_explore.sharding.reshard import StepKind

SEND = "send"
# Torch before 2.13 has these functions under their older names.
_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def collectives(clock: Clock) -> dict[str, list[Point]]:
    """Kind of collective -> points of all ranks together, sizes growing fourfold; size is bytes of the larger side on
    one device."""
    found = _group(clock, None, clock.ranks)
    return {kind: [Point(size=g.bytes, seconds=g.seconds) for g in times] for kind, times in found.items()}


def smaller_groups(clock: Clock) -> list[GroupTime]:
    """Collectives of groups of 2, 4, … neighbours, all groups at once, and sends from even ranks to the next."""
    found: list[GroupTime] = []
    size = 2
    while size < clock.ranks and clock.ranks % size == 0:
        groups = [dist.new_group(list(range(first, first + size))) for first in range(0, clock.ranks, size)]
        mine = groups[dist.get_rank() // size]
        found += [time for times in _group(clock, mine, size).values() for time in times]
        size *= 2
    return found + _sends(clock)


def _group(clock: Clock, group: dist.ProcessGroup | None, size: int) -> dict[str, list[GroupTime]]:
    found: dict[str, list[GroupTime]] = {}
    for exponent in range(8, tuning.LARGEST_BYTES[clock.kind].bit_length() - 3, 2):
        count = 2**exponent * size
        whole = torch.ones(count, device=clock.kind)
        part = torch.ones(count // size, device=clock.kind)
        slowest = 0.0
        for kind, kernel in _kernels(whole, part, torch.empty_like(whole), group).items():
            whole.fill_(1.0)  # repeated sums would overflow
            seconds = clock(kernel)
            slowest = max(slowest, seconds)
            time = GroupTime(kind=kind.value, ranks=size, bytes=4.0 * count, seconds=seconds)
            found.setdefault(kind.value, []).append(time)
        if 4 * slowest > tuning.SLOWEST_SECONDS:
            break
    return found


def _kernels(
    whole: Tensor, part: Tensor, other: Tensor, group: dist.ProcessGroup | None
) -> Mapping[StepKind, Callable[[], object]]:
    return {
        StepKind.ALL_REDUCE: lambda: dist.all_reduce(whole, group=group),
        StepKind.ALL_GATHER: lambda: _all_gather(whole, part, group=group),
        StepKind.REDUCE_SCATTER: lambda: _reduce_scatter(part, whole, group=group),
        StepKind.ALL_TO_ALL: lambda: dist.all_to_all_single(other, whole, group=group),
    }


def _sends(clock: Clock) -> list[GroupTime]:
    found, rank = [], dist.get_rank()
    sends, partner = rank % 2 == 0, rank + 1 if rank % 2 == 0 else rank - 1
    for exponent in range(8, tuning.LARGEST_BYTES[clock.kind].bit_length() - 3, 2):
        message = torch.ones(2**exponent, device=clock.kind)

        def kernel(message: Tensor = message) -> None:
            if partner >= clock.ranks:
                return
            if sends:
                dist.send(message, partner)
            else:
                dist.recv(message, partner)

        seconds = clock(kernel)
        found.append(GroupTime(kind=SEND, ranks=2, bytes=4.0 * 2**exponent, seconds=seconds))
        if 4 * seconds > tuning.SLOWEST_SECONDS:
            break
    return found
