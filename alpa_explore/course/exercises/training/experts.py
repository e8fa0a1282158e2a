"""Exercises of lesson 11: mixtures of experts."""

from __future__ import annotations

from math import isclose
from random import Random
from typing import NamedTuple

import numpy as np

from alpa_explore import units
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.group import device_group
from alpa_explore.cost.group_collectives import group_seconds
from alpa_explore.course.definition import Exercise
from alpa_explore.course.kinds import Number
from alpa_explore.figures.course.training.experts import busiest_over_mean, routed_tokens
from alpa_explore.sharding.reshard import StepKind


class Dispatch(NamedTuple):
    """Tokens of a device on their way to experts."""

    tokens: int
    topk: int
    hidden: int
    devices: int

    @property
    def bytes(self) -> float:
        """That leave a device in one dispatch, balanced, in bf16."""
        return 2.0 * self.tokens * self.topk * self.hidden * (self.devices - 1) / self.devices


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


class Pass(NamedTuple):
    """Tokens that meet the experts of a mixture."""

    mixture: Mixture
    tokens: int


class Load(NamedTuple):
    """Rows that each device computes."""

    rows: tuple[int, ...]


_MIXTURES = (
    Mixture("Mixtral 8x7B", 4096, 14336, 8, 2),
    Mixture("Qwen3-30B-A3B", 2048, 768, 128, 8),
    Mixture("GPT-OSS 120B", 2880, 2880, 128, 4),
)


def _load(random: Random) -> Load:
    devices, skew = random.choice((4, 8)), random.choice((0.25, 0.5, 0.75, 1.0))
    counts = routed_tokens(devices, 16, random.choice((1, 2, 4)), skew)
    return Load(tuple(int(r) for r in counts.sum(axis=0).reshape(devices, -1).sum(axis=1)))


def _exchange_seconds(stride: int, dispatch: Dispatch) -> float:
    group = device_group(Cluster.parse("8x8:h100"), dispatch.devices, stride)
    return group_seconds(StepKind.ALL_TO_ALL, 2.0 * dispatch.tokens * dispatch.topk * dispatch.hidden, group)


_REACHED = Cluster.parse("8x8:h100").software.network_share
"""Share of the network that collectives reach under the default software, Megatron-Core."""


def _link(*, inside: bool) -> str:
    cluster = Cluster.parse("8x8:h100")
    return units.bytes_per_second((cluster.inside_node if inside else cluster.between_nodes).bandwidth)


EXERCISES = (
    Exercise(
        id="11.1",
        draw=lambda random: Dispatch(
            random.choice((4096, 8192)),
            random.choice((2, 4, 8)),
            random.choice((2048, 4096, 7168)),
            random.choice((4, 8)),
        ),
        kind=lambda _: Number(unit="B"),
        truth=lambda d: d.bytes,
        values={"others": lambda n, _: n.devices - 1},
        wrong=lambda d, truth: (truth * d.devices / (d.devices - 1), truth / d.topk),
        holds=lambda d: d.devices > 2,
    ),
    Exercise(
        id="11.2",
        draw=_load,
        kind=lambda _: Number(tolerance=0.01),
        truth=lambda load: max(load.rows) / (sum(load.rows) / len(load.rows)),
        values={
            "devices": lambda n, _: len(n.rows),
            "most": lambda n, _: max(n.rows),
            "mean": lambda n, _: sum(n.rows) / len(n.rows),
        },
        wrong=lambda load, truth: (max(load.rows) / min(load.rows),),
        holds=lambda load: busiest_over_mean(np.array([load.rows]), len(load.rows)) > 1.02,
    ),
    Exercise(
        id="11.3",
        draw=lambda random: Pass(random.choice(_MIXTURES), 512 * random.randint(1, 16)),
        kind=lambda _: Number(unit="FLOP"),
        truth=lambda p: 2.0 * 3 * p.mixture.hidden * p.mixture.ffn * p.mixture.topk * p.tokens,
        values={"of_experts": lambda n, _: 3 * n.mixture.hidden * n.mixture.ffn * n.mixture.experts},
        wrong=lambda p, truth: (truth / p.mixture.active, truth / 2),
        holds=lambda p: p.mixture.active <= 0.25,
    ),
    Exercise(
        id="11.4",
        draw=lambda random: Dispatch(
            random.choice((4096, 8192, 16384)), random.choice((2, 4, 8)), random.choice((2048, 4096, 7168)), 8
        ),
        kind=lambda _: Number(tolerance=0.05),
        truth=lambda d: _exchange_seconds(8, d) / _exchange_seconds(1, d),
        values={
            "inside": lambda *_: _link(inside=True),
            "between": lambda *_: _link(inside=False),
            "reached": lambda *_: _REACHED,
            "board": lambda n, _: _exchange_seconds(1, n),
            "nodes": lambda n, _: _exchange_seconds(8, n),
        },
        wrong=lambda d, truth: (1.0, truth / 8, truth * _REACHED, 1 / truth),
        holds=lambda d: isclose(
            Cluster.parse("8x8:h100").inside_node.bandwidth
            / (_REACHED * Cluster.parse("8x8:h100").between_nodes.bandwidth / 8),
            _exchange_seconds(8, d) / _exchange_seconds(1, d),
            rel_tol=0.05,
        ),
    ),
)
"""In the order of their ids."""
