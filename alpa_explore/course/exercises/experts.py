"""Exercises of lesson 11: mixtures of experts."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from alpa_explore import units
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.group import device_group
from alpa_explore.cost.group_collectives import group_seconds
from alpa_explore.figures.course.training.experts import busiest_over_mean, routed_tokens
from alpa_explore.sharding.reshard import StepKind


class Mixture(NamedTuple):
    """Sizes of a block with experts, of which each is a gated MLP of three matrices."""

    name: str
    hidden: int
    ffn: int
    experts: int
    topk: int

    @property
    def active(self) -> float:
        """Share of the parameters of the experts that a token meets."""
        return self.topk / self.experts


class Load(NamedTuple):
    """Rows that each device computes."""

    rows: tuple[int, ...]

    @property
    def busiest(self) -> float:
        """Of the figure."""
        return busiest_over_mean(np.array([self.rows]), len(self.rows))


_MIXTURES = (
    Mixture("Mixtral 8x7B", 4096, 14336, 8, 2),
    Mixture("Qwen3-30B-A3B", 2048, 768, 128, 8),
    Mixture("GPT-OSS 120B", 2880, 2880, 128, 4),
)


def _load(random: Random) -> Load:
    devices, skew = random.choice((4, 8)), random.choice((0.25, 0.5, 0.75, 1.0))
    counts = routed_tokens(devices, 16, random.choice((1, 2, 4)), skew)
    return Load(tuple(int(r) for r in counts.sum(axis=0).reshape(devices, -1).sum(axis=1)))


def _exchange_seconds(stride: int, dispatch: SimpleNamespace) -> float:
    group = device_group(Cluster.parse("8x8:h100"), dispatch.devices, stride)
    return group_seconds(StepKind.ALL_TO_ALL, 2.0 * dispatch.tokens * dispatch.topk * dispatch.hidden, group)


_REACHED = Cluster.parse("8x8:h100").software.network_share
"""Share of the network that collectives reach under the default software, Megatron-Core."""


def _link(*, inside: bool) -> str:
    cluster = Cluster.parse("8x8:h100")
    return units.bytes_per_second((cluster.inside_node if inside else cluster.between_nodes).bandwidth)
