"""A measured link: the seconds of messages by size, and the latency and bandwidth that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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


def reachable(names: Sequence[str], links: Sequence[MeasuredLink]) -> tuple[str, ...]:
    """Hosts that all reach each other: those left when the one with the most faults is dropped until none is left."""
    left = list(names)
    while True:
        faults = [link for link in links if link.fault and link.source in left and link.target in left]
        if not faults:
            return tuple(left)
        left.remove(max(left, key=lambda name: sum(name in (link.source, link.target) for link in faults)))
