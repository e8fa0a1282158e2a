"""The work of a decoder as JSON, for the cache of results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum
from typing import Any

from alpa_explore.baselines.block_work import DecoderWork
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.cost.work import CollectiveCall, PartWork, PassWork, Recomputed
from alpa_explore.sharding.reshard import StepKind


def stored_work(work: DecoderWork) -> dict[str, Any]:
    """Its fields."""
    return asdict(work, dict_factory=_plain)


def _plain(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Fields of a dataclass as JSON has them."""
    return {name: value.value if isinstance(value, Enum) else value for name, value in fields}


def work_from(stored: Mapping[str, Any]) -> DecoderWork:
    """The inverse of `stored_work`."""
    ends = {part: _part(stored[part]) for part in ("embedding", "head")}
    return DecoderWork(**{**stored, **ends, "blocks": tuple(map(_part, stored["blocks"]))})


def _part(stored: Mapping[str, Any]) -> PartWork:
    recomputed = {
        kind: Recomputed(**{**kept, "again": _pass(kept["again"])}) for kind, kept in stored["recomputed"].items()
    }
    passes = {name: _pass(stored[name]) for name in ("forward", "backward")}
    return PartWork(**{**stored, **passes, "recomputed": recomputed})


def _pass(stored: Mapping[str, Any]) -> PassWork:
    kernels = tuple(
        Kernel(**{**k, "kind": KernelKind(k["kind"]), "sizes": tuple(k["sizes"])}) for k in stored["kernels"]
    )
    calls = tuple(CollectiveCall(**{**c, "kind": StepKind(c["kind"])}) for c in stored["collectives"])
    return PassWork(**{**stored, "kernels": kernels, "collectives": calls})
