"""Measure the attached devices: matrix products, attention, a memory-bound kernel, the host, collectives and sends.

`ranks` processes measure at the same time, one on each device (CPU: each with its share of the cores, gloo; CUDA:
NCCL), because the devices of a node share resources. A measurement repeats a kernel until the total time is long enough
for the clock, and takes the median of `tuning.REPEATS` such measurements, as timed by rank 0.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn

from alpa_explore.calibration.measurements import Measurements
from alpa_explore.calibration.measuring import kernels, links
from alpa_explore.calibration.measuring.clock import Clock, clocks
from alpa_explore.calibration.measuring.host_time import host_seconds
from alpa_explore.calibration.measuring.identity import attached_kind, device_name, software_versions
from alpa_explore.errors import ExecutorError, OptionError


def measure(
    *, kind: str | None = None, ranks: int | None = None, run_seconds: float = 0.02, shapes: bool = True
) -> Measurements:
    """Measure the curves of `kind` ('cpu' or 'cuda'; default: CUDA if available) on `ranks` devices (default: all of a
    node; two on a CPU). A timed series of kernels lasts at least `run_seconds`; without `shapes` only square products,
    the memory-bound kernel and the collectives of all ranks are measured.

    OptionError for devices that do not exist, ExecutorError where a rank fails.
    """
    kind = attached_kind(kind)
    ranks = _checked(kind, ranks)
    if not run_seconds > 0:
        raise OptionError(
            "The seconds of a timed series must be positive",
            found=f"{run_seconds} s",
            remedy="Give seconds above 0; 0.02 is common.",
        )
    with tempfile.TemporaryDirectory() as folder:
        # New processes, even for one rank: threads and groups are settings of a whole process.
        context: Any = spawn(_rank, args=(ranks, kind, folder, run_seconds, shapes), nprocs=ranks, join=False)  # type: ignore[no-untyped-call]  # torch has no annotation
        try:
            while not context.join():
                pass
        except (ProcessRaisedException, ProcessExitedException) as error:
            raise ExecutorError(
                "A rank stopped while measuring",
                found=str(error).strip().splitlines()[-1],
                remedy="Try fewer --ranks, or --device cpu.",
            ) from error
        finally:  # also on Ctrl-C: what goes on measuring would slow down what comes next
            for process in context.processes:
                process.kill()
                process.join()
        found: Measurements = pickle.loads((Path(folder) / "found.pickle").read_bytes())
    return found


def _checked(kind: str, ranks: int | None) -> int:
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


def _rank(rank: int, ranks: int, kind: str, folder: str, run_seconds: float, shapes: bool) -> None:
    """Measure on one rank; rank 0 writes what was found."""
    if kind == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
    if ranks > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the ranks are all on this machine
        backend = "nccl" if kind == "cuda" else "gloo"
        dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    clock, before = Clock(kind, ranks, run_seconds), clocks(kind)
    found = Measurements(
        device=device_name(kind),
        software=software_versions(kind),
        memory_bytes=_memory_bytes(kind, ranks),
        main_dtype=kernels.DTYPES[kind][0],
        ranks=ranks,
        processors=torch.cuda.get_device_properties(rank).multi_processor_count if kind == "cuda" else 1,
        matmul={dtype: tuple(kernels.square_products(clock, dtype)) for dtype in kernels.DTYPES[kind]},
        memory=tuple(kernels.memory(clock)),
        products=tuple(p for d in kernels.SHAPED[kind] * shapes for p in kernels.products(clock, d)),
        attention=tuple(a for d in kernels.ATTENDING[kind] * shapes for a in kernels.attention(clock, d)),
        host_seconds=host_seconds(clock) if shapes else {},
        collectives={k: tuple(points) for k, points in links.collectives(clock).items()} if ranks > 1 else {},
        groups=tuple(links.smaller_groups(clock)) if ranks > 1 and shapes else (),
        clocks={"before": before, "after": clocks(kind)} if before else {},
    )
    if rank == 0:
        (Path(folder) / "found.pickle").write_bytes(pickle.dumps(found))
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()
        # At a regular exit a thread of gloo may still run, and the process would end with SIGABRT.
        os._exit(0)


def _memory_bytes(kind: str, ranks: int) -> int:
    """Memory of one device; the ranks on a CPU share the memory of the machine."""
    if kind == "cuda":
        return int(torch.cuda.get_device_properties(0).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // ranks
