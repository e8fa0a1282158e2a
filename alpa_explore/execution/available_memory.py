"""`require_memory`: an error before the machine swaps, where a problem is larger than its memory."""

from pathlib import Path

from alpa_explore.errors import MachineMemoryError
from alpa_explore.execution import tuning

_MACHINE = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")
"""Of this process in a container, where its limit is the one that counts."""


def require_memory(wanted_bytes: float = 0.0) -> None:
    """MachineMemoryError where the machine, or the container, has not so many bytes to spare beside a reserve. Nothing
    is known, and nothing raised, on systems without /proc."""
    available = available_bytes()
    if available is None or available >= wanted_bytes + tuning.RESERVED_BYTES:
        return
    raise MachineMemoryError(
        "This machine has too little memory to go on planning",
        found=f"{available / 2**30:.2f} GiB available, {wanted_bytes / 2**30:.2f} GiB wanted and "
        f"{tuning.RESERVED_BYTES / 2**30:.2f} GiB kept in reserve",
        remedy="Ask for fewer layers (--layers) or fewer nodes, solve in one process (--scheduler serial), close other "
        "programs, or send the work to a Dask scheduler on a larger machine. Run again: what was finished is kept.",
    )


def available_bytes(machine: Path = _MACHINE, group: Path = _GROUP) -> int | None:
    """Bytes that can be had without swapping; None where the system does not tell."""
    try:
        lines = machine.read_text(encoding="ascii").splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None
    left = _left_in_group(group)
    return available if left is None else min(available, left)


def _left_in_group(group: Path) -> int | None:
    """Bytes up to the limit of a control group; None where it has none. Its cache of files can be given back."""
    try:
        limit, used = (
            (group / "memory.max").read_text(encoding="ascii"),
            int((group / "memory.current").read_text(encoding="ascii")),
        )
        statistics = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
        return max(0, int(limit) - used + int(statistics["inactive_file"]))
    except (OSError, KeyError, ValueError):  # no such group, or the limit is "max"
        return None
