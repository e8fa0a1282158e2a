"""The baselines by name, and the degrees that each takes.

Where the mesh axes of every stage have roles (`WITH_ROLES`), these are what is divided (`role_pipelines`). The others
leave the sharding of the stages to the planner, under constraints (`equal_stages`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from alpa_explore.arguments import plain_name
from alpa_explore.cluster import Cluster
from alpa_explore.errors import OptionError, nearest_names
from alpa_explore.graph import TrainingGraph
from alpa_explore.sharding.rules.attention import QUERIES, QUERIES_ZIGZAG, RING, RING_ZIGZAG, ULYSSES
from alpa_explore.sharding.zigzag import in_zigzag_order

ONE_STAGE = ("data-parallel", "zero-1", "zero-2", "zero-3")
WITH_ROLES = (*ONE_STAGE, "hsdp", "megatron", "fsdp+tp+pp")
KINDS: Mapping[str, str] = {
    "data-parallel": "one stage, in which every axis shards the batch",
    "zero-1": "the same, with optimizer state sharded too",
    "zero-2": "the same, and accumulated gradients",
    "zero-3": "the same, and weights; with cp > 1 an axis divides the sequence, attention by a ring, as in torchtitan",
    "hsdp": "zero-3 in groups of devices that are replicas of each other: dp = replicas × shards",
    "megatron": "pp stages of equally many layers, each on dp × cp × tp devices; ep of dp hold different experts",
    "fsdp+tp+pp": "the same with weights sharded over dp × cp, as torchtitan runs it, or over those of a replica",
    "gpipe-equal-layers": "stages of equally many layers on submeshes of one shape, each sharded in the best way",
    "intra-only": "one stage on all devices, sharded in the best way",
    "inter-only": "a pipeline of single devices, cut in the best way",
    "equal-operators": "the whole planner, but layers are runs of equally many operators",
}
"""The baselines: name -> what it is. Over dp × cp, megatron has the ZeRO stage `zero`, by default that of the software
(0 or 1); with `chunks` each of its stages has so many parts of the model, which run interleaved."""
ALIASES = {"fsdp": "zero-3", "ddp": "data-parallel", "3d": "megatron", "5d": "megatron"}
"""Other names of baselines."""
_FIXED = {"3d": {"cp": 1, "ep": 1}}
"""Degrees that such a name fixes."""
_TAKES = {
    "zero-3": ("cp",),
    "hsdp": ("replicas", "cp"),
    "megatron": ("tp", "dp", "pp", "cp", "ep", "zero", "chunks"),
    "3d": ("tp", "dp", "pp"),
    "fsdp+tp+pp": ("tp", "dp", "pp", "replicas", "cp", "ep"),
    "gpipe-equal-layers": ("pp",),
}
"""The degrees that a baseline takes."""
EXCHANGES = {"ring": RING, "ring-zigzag": RING_ZIGZAG, "all-gather": f"{QUERIES} {QUERIES_ZIGZAG}", "ulysses": ULYSSES}
"""How devices that share a sequence exchange keys and values -> factors of attention (`sharding.rules.attention`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """The degrees that the user fixed; None is free. tp × cp × dp × pp devices are all of the cluster."""

    tp: int | None = None
    dp: int | None = None
    pp: int | None = None
    replicas: int | None = None
    """Groups of data-parallel devices, each of which holds all weights once."""
    cp: int | None = None
    """Devices that share a sequence."""
    ep: int | None = None
    """Data-parallel devices that hold different experts: it divides dp, and the shards of a replica."""
    zero: int | None = None
    """The ZeRO stage, 0 to 3; by default that of the software."""
    chunks: int | None = None
    """Parts of the model on each stage: more than 1 are run interleaved."""

    def only(self, kind: str) -> Degrees:
        """Those that a baseline takes, by any of its names."""
        return Degrees(**{name: getattr(self, name) for name in takes(kind)})

    def __str__(self) -> str:
        names = self.__dataclass_fields__
        return ", ".join(f"{n}={value}" for n in names if (value := getattr(self, n)) is not None) or "none given"


def resolve(kind: str, degrees: Degrees, exchange: str | None = None) -> tuple[str, Degrees]:
    """The name of a baseline, for it or another name of it, and `degrees` with those that this name fixes.

    OptionError for an unknown name, for degrees that the baseline does not take, and for an exchange of keys and values
    that is none or without cp.
    """
    kind, exchange = str(plain_name(kind)), None if exchange is None else str(plain_name(exchange))
    known = ALIASES.get(kind, kind)
    if known not in KINDS:
        names = (*KINDS, *ALIASES)
        raise OptionError("Unknown baseline", found=repr(kind), remedy=nearest_names(kind, names, count=len(names)))
    accepted = takes(kind)
    for name in Degrees.__dataclass_fields__:
        value = getattr(degrees, name)
        if value is not None and name not in accepted:
            raise OptionError(
                f"The baseline {kind} does not take {name}",
                found=f"{name}={value}",
                remedy=f"It takes {', '.join(accepted)}." if accepted else "Leave it out.",
            )
        if name == "zero" and value is not None and not 0 <= value <= 3:
            raise OptionError("There is no such ZeRO stage", found=f"zero={value}", remedy="Give 0, 1, 2 or 3.")
        if name != "zero" and value is not None and value < 1:
            raise OptionError(f"{name} must be 1 or more", found=f"{name}={value}", remedy="Give 1 or more.")
    if exchange is not None and exchange not in EXCHANGES:
        raise OptionError("Unknown exchange", found=repr(exchange), remedy=nearest_names(exchange, EXCHANGES, count=4))
    if exchange is not None and (degrees.cp or 1) == 1:
        takers = ", ".join(name for name in KINDS if "cp" in takes(name))
        raise OptionError(
            "Only devices that share a sequence exchange keys and values",
            found=f"exchange={exchange} without cp",
            remedy=f"Give cp of 2 or more to one of the baselines {takers}.",
        )
    return known, replace(degrees, **_FIXED.get(kind, {}))


def takes(kind: str) -> tuple[str, ...]:
    """The degrees that a baseline takes, by any of its names."""
    return _TAKES.get(kind) or _TAKES.get(ALIASES.get(kind, kind), ())


def ordered(graph: TrainingGraph, parts: int, exchange: str | None) -> TrainingGraph:
    """The graph with sequences in zig-zag order for a context group, as Megatron-LM brings them, where the model and
    the exchange allow that."""
    if parts == 1 or exchange in ("ring", "ulysses"):
        return graph
    try:
        return in_zigzag_order(graph, parts)
    except OptionError:  # a mask, or positions of its own: the ring changes the order inside attention
        return graph


def dividing_sequences(cluster: Cluster, exchange: str | None) -> Cluster:
    """The cluster with software that divides sequences of any length, attention by this exchange."""
    factors = f"{RING} {RING_ZIGZAG}" if exchange is None else EXCHANGES[exchange]
    return cluster.with_changes(software=replace(cluster.software, context_positions=1, context_factors=factors))
