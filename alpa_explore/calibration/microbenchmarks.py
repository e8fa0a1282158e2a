"""Measure curves on the attached devices: matrix products, a memory-bound kernel, collectives.

`ranks` processes measure at the same time, one on each device (CPU: each with its share of the cores, gloo; CUDA:
NCCL), because the devices of a node share resources. A measurement repeats a kernel until the total time is long enough
for the clock, and takes the median of `tuning.REPEATS` such measurements, as timed by rank 0.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn

from alpa_explore.calibration import tuning
from alpa_explore.calibration.device_file import Measurements, Point
from alpa_explore.errors import ExecutorError, OptionError
from alpa_explore.sharding.reshard import StepKind

_DTYPES = {"cpu": ("float32", "bfloat16", "float64"), "cuda": ("float16", "bfloat16", "float32", "float64")}


def measure(*, kind: str | None = None, ranks: int | None = None, run_seconds: float = 0.02) -> Measurements:
    """Measure the curves of `kind` ('cpu' or 'cuda'; default: CUDA if available) on `ranks` devices (default: all of a
    node; two on a CPU). A timed series of kernels lasts at least `run_seconds`.

    OptionError for devices that do not exist, ExecutorError where a rank fails.
    """
    kind = kind or ("cuda" if torch.cuda.is_available() else "cpu")
    ranks = _checked(kind, ranks)
    if not run_seconds > 0:
        raise OptionError(
            "The seconds of a timed series must be positive",
            found=f"{run_seconds} s",
            remedy="Give seconds above 0; 0.02 is common.",
        )
    with tempfile.TemporaryDirectory() as folder:
        # New processes, even for one rank: threads and groups are settings of a whole process.
        try:
            spawn(_rank, args=(ranks, kind, folder, run_seconds), nprocs=ranks)  # type: ignore[no-untyped-call]  # torch has no annotation
        except (ProcessRaisedException, ProcessExitedException) as error:
            raise ExecutorError(
                "A rank stopped while measuring",
                found=str(error).strip().splitlines()[-1],
                remedy="Try fewer --ranks, or --device cpu.",
            ) from error
        curves = json.loads((Path(folder) / "found.json").read_text())
    return Measurements(
        device=_name(kind),
        software=f"torch {torch.__version__}, {platform.system()} {platform.machine()}",
        memory_bytes=_memory_bytes(kind, ranks),
        main_dtype=_DTYPES[kind][0],
        ranks=ranks,
        matmul={dtype: _points(pairs) for dtype, pairs in curves["matmul"].items()},
        memory=_points(curves["memory"]),
        collectives={name: _points(pairs) for name, pairs in curves["collectives"].items()},
    )


def _checked(kind: str, ranks: int | None) -> int:
    if kind not in _DTYPES:
        raise OptionError("Unknown kind of device", found=repr(kind), remedy="Use 'cpu' or 'cuda'.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise OptionError("No CUDA device is attached", found="torch.cuda.is_available() is False", remedy="Use 'cpu'.")
    available = torch.cuda.device_count() if kind == "cuda" else (os.cpu_count() or 1)
    if ranks is None:
        return available if kind == "cuda" else min(2, available)
    if not 1 <= ranks <= available:
        raise OptionError(
            "Every rank needs a device of its own",
            found=f"{ranks} ranks",
            remedy=f"Give 1 to {available}, as many as there are {'GPUs' if kind == 'cuda' else 'cores'}.",
        )
    return ranks


def _rank(rank: int, ranks: int, kind: str, folder: str, run_seconds: float) -> None:
    """Measure on one rank; rank 0 writes the curves."""
    if kind == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
    if ranks > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the ranks are all on this machine
        backend = "nccl" if kind == "cuda" else "gloo"
        dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    clock = _Clock(kind, ranks, run_seconds)
    curves: dict[str, Any] = {
        "matmul": {dtype: _matmul(clock, kind, dtype) for dtype in _DTYPES[kind]},
        "memory": _memory(clock, kind),
        "collectives": _collectives(clock, kind, ranks) if ranks > 1 else {},
    }
    if rank == 0:
        (Path(folder) / "found.json").write_text(json.dumps(curves))
    if ranks > 1:
        dist.destroy_process_group()


class _Clock:
    """Measures the seconds of one call of a kernel. All ranks repeat it equally often, else collectives would hang."""

    def __init__(self, kind: str, ranks: int, run_seconds: float) -> None:
        self.kind, self.ranks, self.run_seconds = kind, ranks, run_seconds

    def __call__(self, kernel: Callable[[], object]) -> float:
        kernel()
        repeats, once = 1, self._run(kernel, 1)
        while once < self.run_seconds:
            repeats = max(2 * repeats, min(int(1.2 * self.run_seconds * repeats / max(once, 1e-9)), 100 * repeats))
            once = self._run(kernel, repeats)
        return statistics.median(self._run(kernel, repeats) for _ in range(tuning.REPEATS)) / repeats

    def _run(self, kernel: Callable[[], object], repeats: int) -> float:
        """Seconds of `repeats` calls, the maximum over all ranks, so that all ranks proceed alike."""
        if self.ranks > 1:
            dist.barrier()
        self._finish()
        start = time.perf_counter()
        for _ in range(repeats):
            kernel()
        self._finish()
        seconds = time.perf_counter() - start
        if self.ranks == 1:
            return seconds
        longest = torch.tensor([seconds], dtype=torch.float64, device=self.kind)
        dist.all_reduce(longest, op=dist.ReduceOp.MAX)
        return float(longest)

    def _finish(self) -> None:
        if self.kind == "cuda":
            torch.cuda.synchronize()


def _matmul(clock: _Clock, kind: str, dtype: str) -> list[tuple[float, float]]:
    """(FLOPs, seconds) of square matrix products with doubling sides."""
    points, side = [], 32
    while side <= tuning.LARGEST_SIDE[kind]:
        a = torch.randn(side, side, device=kind).to(getattr(torch, dtype))
        out = torch.empty_like(a)

        def kernel(a: torch.Tensor = a, out: torch.Tensor = out) -> None:
            torch.mm(a, a, out=out)

        seconds = clock(kernel)
        points.append((2.0 * side**3, seconds))
        if 8 * seconds > tuning.SLOWEST_SECONDS:
            break
        side *= 2
    return points


def _memory(clock: _Clock, kind: str) -> list[tuple[float, float]]:
    """(bytes, seconds) of an elementwise sum of growing size."""
    points = []
    for exponent in range(6, tuning.LARGEST_BYTES[kind].bit_length() - 2, 2):
        a = torch.ones(2**exponent, device=kind)
        out = torch.empty_like(a)

        def kernel(a: torch.Tensor = a, out: torch.Tensor = out) -> None:
            torch.add(a, a, out=out)

        seconds = clock(kernel)
        points.append((2.0 * 4 * 2**exponent, seconds))
        if 4 * seconds > tuning.SLOWEST_SECONDS:
            break
    return points


def _collectives(clock: _Clock, kind: str, ranks: int) -> dict[str, list[tuple[float, float]]]:
    """Kind of collective -> (bytes, seconds), sizes growing fourfold; bytes of the larger side on one device."""
    points: dict[str, list[tuple[float, float]]] = {}
    for exponent in range(8, tuning.LARGEST_BYTES[kind].bit_length() - 3, 2):
        count = 2**exponent * ranks
        whole = torch.ones(count, device=kind)
        part = torch.ones(count // ranks, device=kind)
        other = torch.empty_like(whole)
        slowest = 0.0
        for step, kernel in _kernels(whole, part, other).items():
            whole.fill_(1.0)  # repeated sums would overflow
            seconds = clock(kernel)
            slowest = max(slowest, seconds)
            points.setdefault(step.value, []).append((4.0 * count, seconds))
        if 4 * slowest > tuning.SLOWEST_SECONDS:
            break
    return points


def _kernels(whole: torch.Tensor, part: torch.Tensor, other: torch.Tensor) -> dict[StepKind, Callable[[], object]]:
    return {
        StepKind.ALL_REDUCE: lambda: dist.all_reduce(whole),
        StepKind.ALL_GATHER: lambda: dist.all_gather_single(whole, part),
        StepKind.REDUCE_SCATTER: lambda: dist.reduce_scatter_single(part, whole),
        StepKind.ALL_TO_ALL: lambda: dist.all_to_all_single(other, whole),
    }


def _points(pairs: list[list[float]]) -> tuple[Point, ...]:
    return tuple(Point(size=size, seconds=seconds) for size, seconds in pairs)


def _name(kind: str) -> str:
    return torch.cuda.get_device_name(0) if kind == "cuda" else f"{platform.processor() or platform.machine()} CPU"


def _memory_bytes(kind: str, ranks: int) -> int:
    """Memory of one device; the ranks on a CPU share the memory of the machine."""
    if kind == "cuda":
        return int(torch.cuda.get_device_properties(0).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // ranks
