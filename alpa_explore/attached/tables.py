"""Hosts and links as rows of tables, for the command line and the explorer."""

import re
from collections.abc import Sequence
from typing import Any

from alpa_explore import units
from alpa_explore.attached.hosts import Host, MeasuredLink, memory_text

Row = dict[str, Any]


def host_rows(hosts: Sequence[Host]) -> list[Row]:
    """A row for each host."""
    return [
        {
            "host": host.name,
            "address": host.address,
            "devices": host.problem or _devices(host),
            "free memory": "" if host.problem else memory_text(host),
            "Python": host.versions.python,
            "torch": host.versions.torch,
            "alpa_explore": host.versions.alpa_explore,
        }
        for host in hosts
    ]


def link_rows(links: Sequence[MeasuredLink]) -> list[Row]:
    """A row for each link; bandwidth at some message sizes, where they were reached."""
    sizes = sorted({size for link in links for size, _ in link.points})
    shown = sizes if len(sizes) < 5 else [sizes[0], sizes[len(sizes) // 2], sizes[-1]]
    rows = []
    for link in links:
        seconds = dict(link.points)
        rates = {f"at {units.bytes_(size)}": _rate(size, seconds.get(size)) for size in shown}
        rows.append(
            {
                "link": f"inside {link.source}" if link.inside else f"{link.source} → {link.target}",
                "latency": link.fault or units.seconds(link.latency_seconds),
                "bandwidth": "" if link.fault else units.bytes_per_second(link.bandwidth),
                **rates,
            }
        )
    return rows


def _devices(host: Host) -> str:
    """'8 × NVIDIA H100', '4 cores of Intel Xeon'."""
    model = re.sub(r"\((R|TM)\)| CPU @.*| Processor$", "", host.device, flags=re.IGNORECASE)
    return f"{host.devices} × {model}" if host.gpus else f"{host.devices} cores of {model}"


def _rate(size: int, seconds: float | None) -> str:
    return "" if not seconds else units.bytes_per_second(size / seconds)
