"""The seconds of one call of a kernel.

On a CPU the wall clock, or that of the thread; on a GPU the device's own, between two events. There the host first
queues a wait on the device, so that the kernels are issued before the first of them runs: else a small kernel would
take as long as the host needs to issue it, which `host_time` measures by itself.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from alpa_explore.calibration import tuning
from alpa_explore.calibration.measuring.identity import asked


class Clock:
    """Measures the seconds of one call of a kernel. All ranks repeat it equally often, else collectives would hang."""

    def __init__(
        self, kind: str, ranks: int, run_seconds: float, host_clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`host_clock` measures on a CPU: `time.thread_time` leaves out what other programs take of its time."""
        self.kind, self.ranks, self.run_seconds, self.host_clock = kind, ranks, run_seconds, host_clock
        self.spent_seconds = 0.0
        """All timed runs until now; equal on all ranks, so that they skip the same points."""

    def __call__(self, kernel: Callable[[], object]) -> float:
        """The median of `runs`."""
        return statistics.median(self.runs(kernel))

    def runs(self, kernel: Callable[[], object]) -> list[float]:
        """Seconds of a call in each of `tuning.REPEATS` runs of as many calls as `run_seconds` needs."""
        for _ in range(tuning.WARM_UPS):
            kernel()
        repeats, once = 1, self._run(kernel, 1)
        most = tuning.MOST_QUEUED if self.kind == "cuda" else tuning.MOST_REPEATS
        while once < self.run_seconds and repeats < most:
            enough = int(1.2 * self.run_seconds * repeats / max(once, 1e-9))
            repeats = min(max(2 * repeats, min(enough, 100 * repeats)), most)
            once = self._run(kernel, repeats)
        return [self._run(kernel, repeats) / repeats for _ in range(tuning.REPEATS)]

    def meet(self) -> None:
        """Wait for all ranks and for the device."""
        if self.ranks > 1:
            dist.all_reduce(torch.zeros(1, device=self.kind))
        self.finish()

    def finish(self) -> None:
        """Wait for the device."""
        if self.kind == "cuda":
            torch.cuda.synchronize()

    def agreed(self, seconds: float) -> float:
        """The largest value over all ranks."""
        if self.ranks == 1:
            return seconds
        longest = torch.tensor([seconds], dtype=torch.float64, device=self.kind)
        dist.all_reduce(longest, op=dist.ReduceOp.MAX)
        return float(longest)

    def _run(self, kernel: Callable[[], object], repeats: int) -> float:
        """Seconds of `repeats` calls, the maximum over all ranks, so that all ranks proceed alike."""
        self.meet()
        seconds = self._on_device(kernel, repeats) if self.kind == "cuda" else self._on_host(kernel, repeats)
        seconds = self.agreed(seconds)
        self.spent_seconds += seconds
        return seconds

    def _on_host(self, kernel: Callable[[], object], repeats: int) -> float:
        start = self.host_clock()
        for _ in range(repeats):
            kernel()
        return self.host_clock() - start

    @staticmethod
    def _on_device(kernel: Callable[[], object], repeats: int) -> float:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch has no annotation
        torch.cuda._sleep(min(repeats * tuning.ISSUE_CYCLES, tuning.MOST_WAIT_CYCLES))  # type: ignore[no-untyped-call]  # as above
        first.record()
        for _ in range(repeats):
            kernel()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3


def clocks(kind: str) -> str:
    """Clocks, power and temperature of the GPU as its driver tells them; '' where there is none to ask."""
    if kind != "cuda":
        return ""
    queries = "clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit,temperature.gpu"
    told = asked(queries)
    if not told:
        return ""
    return ", ".join(
        f"{name} {value.strip()}" for name, value in zip(queries.split(","), told.split(","), strict=False)
    )
