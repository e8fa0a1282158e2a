"""A host as Dask workers on it see it: whether two are one machine, whether two can exchange code, who reaches whom."""

import os
import socket
from collections.abc import Collection, Sequence
from pathlib import Path


def first_line(path: str) -> str:
    """The text of a file of the kernel; '' where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def machine() -> str:
    """Identity of the running kernel: the same for the containers of one machine."""
    return first_line("/proc/sys/kernel/random/boot_id") or socket.gethostname()


def network() -> str:
    """Identity of the network of this process: with the same kernel, the same host."""
    try:
        return os.readlink("/proc/self/ns/net")
    except OSError:
        return socket.gethostname()


def comparable(package: str, version: str) -> str:
    """What two processes must have in common to exchange code: of Python major and minor version; of others not the
    build, for a launcher without a GPU may start ranks that have one."""
    return ".".join(version.split(".")[:2]) if package == "python" else version.partition("+")[0]


def reaching_all(hosts: Sequence[str], faults: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """The hosts left when the one with the most faults (source, target), of several the last, is dropped until all
    reach each other."""
    left = list(hosts)
    while open_faults := [pair for pair in faults if set(pair) <= set(left)]:
        left.remove(max(reversed(left), key=lambda host: sum(host in pair for pair in open_faults)))
    return tuple(left)
