"""A host: its devices, memory and versions; in what several hosts differ; links between them; tables of both."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from alpa_explore import units
from alpa_explore.execution.hosts import comparable
from alpa_explore.plans.report.tables import Row, row_of


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLink:
    """What was sent from one host to another by TCP, or why nothing could be."""

    source: str
    """Name of the host that connects and sends."""
    target: str
    """The same as `source` for the link inside a host."""
    latency_seconds: float = 0.0
    """Half of the round trip of one byte."""
    points: tuple[tuple[int, float], ...] = ()
    """(bytes of a message, seconds until all have arrived), ascending."""
    fault: str = ""
    """Why the target cannot be reached: 'connection refused'."""

    @property
    def inside(self) -> bool:
        """Whether it is the link inside a host."""
        return self.source == self.target

    @property
    def bandwidth(self) -> float:
        """Bytes per second of the largest message, without the latency; 0 where nothing arrived."""
        if not self.points:
            return 0.0
        size, seconds = self.points[-1]
        return size / max(seconds - self.latency_seconds, 0.5 * seconds)

    def __str__(self) -> str:
        return f"{self.source} → {self.target}" + (f": {self.fault}" if self.fault else "")


def slowest(links: Sequence[MeasuredLink]) -> MeasuredLink:
    """The link with the least bandwidth."""
    return min(links, key=lambda link: link.bandwidth)


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What a process runs; '' where it is not known or not installed."""

    python: str = ""
    """'3.13.1'; processes of the same 3.13 can exchange functions."""
    torch: str = ""
    alpa_explore: str = ""
    """The version and a digest of the sources: '0.1.0 a1b2c3d4'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU of a host."""

    name: str
    uuid: str
    memory_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host with at least one Dask worker."""

    name: str
    """Its own name; with the address behind it where two hosts have the same name."""
    address: str
    """IP address by which the scheduler knows its workers; links are measured there."""
    workers: tuple[str, ...]
    """Dask addresses of its workers, sorted."""
    versions: Versions = field(default_factory=Versions)
    cpu: str = ""
    """Model of the processor."""
    cores: int = 0
    """CPU cores that the worker may use."""
    memory_bytes: int = 0
    free_bytes: int = 0
    """Memory of the host that is available now; a share of it where several of the hosts are one machine."""
    gpus: tuple[Gpu, ...] = ()
    machine: str = ""
    """Identity of the running kernel: the same for the containers of one machine."""
    namespace: str = ""
    """Identity of its network: with the same kernel, the same host."""
    rdma: tuple[str, ...] = ()
    """Names of InfiniBand and RoCE adapters."""
    problem: str = ""
    """Why the host could not describe itself; its devices are not known then."""

    @property
    def kind(self) -> str:
        """'cuda' or 'cpu': what ranks run on."""
        return "cuda" if self.gpus else "cpu"

    @property
    def device(self) -> str:
        """Model of the devices."""
        return " + ".join(sorted({gpu.name for gpu in self.gpus})) if self.gpus else self.cpu

    @property
    def devices(self) -> int:
        """GPUs, or else CPU cores, each of which takes a process."""
        return len(self.gpus) or self.cores

    @property
    def free_of_devices(self) -> int:
        """Bytes that each device has free if all are used: of the fullest GPU, or an equal share of the host's."""
        if self.gpus:
            return min(gpu.free_bytes for gpu in self.gpus)
        return self.free_bytes // max(self.cores, 1)


_COMPARED: tuple[tuple[str, Callable[[Host], str]], ...] = (
    ("Python", lambda h: comparable("python", h.versions.python)),
    ("torch", lambda h: h.versions.torch),
    ("alpa_explore", lambda h: h.versions.alpa_explore),
    ("devices", lambda h: f"{h.devices} × {h.device}"),
)
"""What must be equal on all hosts of a cluster."""


def differences(hosts: Sequence[Host]) -> tuple[str, ...]:
    """In what hosts differ that a cluster has equal, a sentence each: 'torch is 2.12.0 on h2, 2.13.0 on h1, h3'."""
    found = [f"{host.name}: {host.problem}" for host in hosts if host.problem]
    known = [host for host in hosts if not host.problem]
    for what, value in _COMPARED:
        values = Counter(value(host) for host in known)
        if len(values) > 1:
            groups = [
                f"{text or 'not known'} on {', '.join(h.name for h in known if value(h) == text)}"
                for text, _ in sorted(values.items(), key=lambda pair: (pair[1], pair[0]))
            ]
            found.append(f"{what}: {'; '.join(groups)}")
    return tuple(found)


def largest_equal(hosts: Sequence[Host]) -> tuple[str, ...]:
    """Names of the largest group of equal hosts."""
    keys = {host.name: tuple(value(host) for _, value in _COMPARED) for host in hosts if not host.problem}
    if not keys:
        return ()
    most = Counter(keys.values()).most_common(1)[0][0]
    return tuple(name for name, key in keys.items() if key == most)


def differences_from_here(hosts: Sequence[Host], here: Versions) -> tuple[str, ...]:
    """In what hosts differ from this process: a plan can be made, but a run sends them code that they may not read."""
    known = [host for host in hosts if not host.problem]
    found = []
    for what, field_name in (("Python", "python"), ("torch", "torch"), ("alpa_explore", "alpa_explore")):
        there = {host.name: comparable(field_name, getattr(host.versions, field_name)) for host in known}
        mine = comparable(field_name, getattr(here, field_name))
        others = set(there.values()) - {mine}
        if others and mine:
            names = ", ".join(name for name, version in there.items() if version != mine)
            found.append(f"{what}: {', '.join(sorted(others)) or 'not known'} on {names}; {mine} here")
    return tuple(found)


def memory_text(host: Host) -> str:
    """'15.5 of 16 GiB' that are free: of each GPU, or of the host."""
    total = min(g.memory_bytes for g in host.gpus) if host.gpus else host.memory_bytes
    free = units.bytes_(host.free_of_devices if host.gpus else host.free_bytes)
    number, _, unit = free.partition(" ")
    whole = units.bytes_(total)
    return f"{number if whole.endswith(f' {unit}') else free} of {whole}" + (" each" if host.gpus else "")


def host_rows(hosts: Sequence[Host]) -> list[Row]:
    """A row for each host."""
    return [
        row_of(host, "host=name address")
        | {"devices": host.problem or _devices(host), "free memory": "" if host.problem else memory_text(host)}
        | row_of(host.versions, "Python=python torch alpa_explore")
        for host in hosts
    ]


def link_rows(links: Sequence[MeasuredLink]) -> list[Row]:
    """A row for each link; bandwidth at some message sizes, where they were reached."""
    sizes = sorted({size for link in links for size, _ in link.points})
    shown = sizes if len(sizes) < 5 else [sizes[0], sizes[len(sizes) // 2], sizes[-1]]
    rows = []
    for link in links:
        seconds = dict(link.points)
        rates = {
            f"at {units.bytes_(size)}": units.bytes_per_second(size / took) if (took := seconds.get(size)) else ""
            for size in shown
        }
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
