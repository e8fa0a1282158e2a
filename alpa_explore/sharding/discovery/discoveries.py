"""The results of discovery in this process, as plain values without torch, so that they can be sent to workers.

A worker must divide an operator exactly as the process that reads its result does, and the operator may not even exist
in the worker (a notebook may have registered it). So discovery runs once, its results are sent with each task, and the
worker records them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from alpa_explore.sharding.strategy import Split


@dataclass(frozen=True, slots=True)
class DiscoveredSplits:
    """The splits that running an operator established."""

    splits: tuple[Split, ...]
    reason: str = ""
    """Why there are no splits; empty otherwise."""


Signature: TypeAlias = tuple[object, ...]
DiscoveryRecords: TypeAlias = tuple[tuple[Signature, DiscoveredSplits], ...]

# Memo of a pure function: operator signature -> what `discover` returns for it, or received from another process.
_RECORDED: dict[Signature, DiscoveredSplits] = {}


def recorded_discovery(signature: Signature) -> DiscoveredSplits | None:
    """The recorded splits of operators of this signature; None when there is no record."""
    return _RECORDED.get(signature)


def record_discoveries(discoveries: Iterable[tuple[Signature, DiscoveredSplits]]) -> None:
    """Record discoveries made here or in another process; an existing record is kept."""
    for signature, discovery in discoveries:
        _RECORDED.setdefault(signature, discovery)
