"""Context parallelism: what the software divides a sequence by, and the order of positions in which it does."""

from __future__ import annotations

from dataclasses import replace

from alpa_explore.baselines.kinds import EXCHANGES
from alpa_explore.cluster import Cluster
from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.sharding.rules.attention import RING, RING_ZIGZAG
from alpa_explore.sharding.zigzag import in_zigzag_order


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
