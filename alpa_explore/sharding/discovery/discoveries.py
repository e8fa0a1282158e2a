"""What discovery has found so far in this process, without torch: so that it can travel to others.

A worker must divide an operator as the process that reads its answer does, and may not know the operator at all (one
that a notebook has registered). So discoveries are made once, travel with the task, and are remembered there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from alpa_explore.sharding.strategy import Split


@dataclass(frozen=True, slots=True)
class Discovery:
    """What running an operator showed."""

    splits: tuple[Split, ...]
    reason: str = ""
    """Why there are none."""


Signature: TypeAlias = tuple[object, ...]
Discoveries: TypeAlias = tuple[tuple[Signature, Discovery], ...]

_FOUND: dict[Signature, Discovery] = {}
"""A memory of a pure function: what it holds for a signature never changes."""


def known(signature: Signature) -> Discovery | None:
    """What was found of operators of this signature."""
    return _FOUND.get(signature)


def remember(discoveries: Iterable[tuple[Signature, Discovery]]) -> None:
    """Take over what was found here or in another process; what is known already stays."""
    for signature, discovery in discoveries:
        _FOUND.setdefault(signature, discovery)
