"""Target `local`: an agent on this machine starts a process per rank. The ranks connect through a file, not a port."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alpa_explore import units
from alpa_explore.errors import OptionError
from alpa_explore.runtime import tuning
from alpa_explore.runtime.folder import full_disk
from alpa_explore.runtime.targets.agents import AgentProcess

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan


def check_devices(plan: Plan, device: str) -> None:
    """OptionError, with the missing amount, where this machine has too few devices or too little memory."""
    check_available(sum(len(stage.devices) for stage in plan.stages), available_devices(device), device)
    # What the software keeps back on a GPU, a process on a CPU does not.
    needed = sum(len(s.devices) * (s.peak_bytes - plan.device_of(s).reserved_bytes) for s in plan.stages)
    memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if device == "cpu" and needed > memory:
        raise OptionError(
            "The plan needs more memory than this machine has",
            found=f"{units.bytes_(needed)} for all its ranks, {units.bytes_(memory)} here: "
            f"{units.bytes_(needed - memory)} are missing",
            remedy="Plan a smaller model or a smaller microbatch.",
        )


def available_devices(device: str) -> int:
    """The number of ranks that this machine can have."""
    if device == "cpu":
        return tuning.PROCESSES_A_CORE * (os.cpu_count() or 1)
    import torch  # seconds, which a Dask worker without GPUs has no need of

    return torch.cuda.device_count()


def check_available(needed: int, available: int, device: str) -> None:
    """OptionError where there are fewer devices than needed."""
    kind = "GPUs" if device == "cuda" else f"CPU processes ({tuning.PROCESSES_A_CORE} a core)"
    if needed > available:
        raise OptionError(
            "The plan needs more devices than are attached",
            found=f"{needed} in the plan, {available} {kind} attached: {needed - available} are missing",
            remedy="Attach more, plan for fewer devices, or write a script (torchrun, slurm) for other machines."
            + (" The device 'cpu' runs it here." * (device == "cuda")),
        )


class LocalRanks:
    """The ranks of a run, started."""

    def __init__(self, folder: Path, world: int) -> None:
        self.folder = folder
        self._killed = False
        meet = f"file:{folder / 'job' / 'store'}"
        self._agent = AgentProcess([str(folder), "0", str(world), meet], environment(), folder / "agent-0.log")

    def poll(self) -> dict[str, Any] | None:
        """How the run ended; None while it goes on."""
        if self._killed:
            return {"state": "stopped"}
        code = self._agent.poll()
        return None if code is None else agent_outcome(self.folder, 0, code)

    def stop(self) -> None:
        """End the ranks; returns when they are gone."""
        self._killed = not self._agent.stop(tuning.STOP_SECONDS) or self._killed


def agent_outcome(folder: Path, first: int, code: int) -> dict[str, Any]:
    """How the ranks of an agent ended: its report, or what can be seen where it wrote none."""
    path, log = folder / f"agent-{first}.json", folder / f"agent-{first}.log"
    if path.exists():
        outcome: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return outcome
    log_lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    at = f"exit code {code} on {socket.gethostname()}" + (f": {log_lines[-1][:300]}" if log_lines else "")
    told = {"what": f"The agent of rank {first} ended", "found": at, "remedy": f"Look at {log}."}
    full = full_disk(folder, at)
    return {"state": "failed", "rank": None, "may_pass": full is None, **(full or told)}


def agent_command(folder: Path, first: int, count: int, meet: str) -> list[str]:
    """The command that starts an agent. -P: files in the current folder cannot shadow modules."""
    return [sys.executable, "-P", "-m", "alpa_explore.runtime.ranks.agent", str(folder), str(first), str(count), meet]


def environment(sockets: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of an agent: the module path of this process, and one thread per rank for numerical libraries.

    `sockets` are the variables by which gloo and NCCL find the network, by default those of the loopback: all ranks are
    on this machine, whose name may not resolve. What the environment of this process says of them wins.
    """
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    path = {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    if sockets is None:
        loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
        sockets = {"GLOO_SOCKET_IFNAME": loopback[0]} if loopback else {}
    # The agent forks its ranks: were its process to open a CUDA device (counting devices does), theirs could not.
    no_cuda = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    return {**sockets, **os.environ, **one_thread, **path, **no_cuda}
