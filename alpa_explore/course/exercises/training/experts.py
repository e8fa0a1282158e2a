"""Exercises of lesson 11: mixtures of experts."""

from __future__ import annotations

from math import isclose
from random import Random
from textwrap import dedent
from typing import NamedTuple

import numpy as np

from alpa_explore import units
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.group import device_group
from alpa_explore.cost.group_collectives import group_seconds
from alpa_explore.course.definition import Exercise, Mistake
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
        title="What an all-to-all sends",
        draw=lambda random: Dispatch(
            random.choice((4096, 8192)),
            random.choice((2, 4, 8)),
            random.choice((2048, 4096, 7168)),
            random.choice((4, 8)),
        ),
        question=lambda d: (
            f"A device has {d.tokens:,} tokens of {d.hidden:,} numbers in bf16. Each goes to its {d.topk} best "
            f"experts, which are spread evenly over {d.devices} devices; the router is balanced.\n\nHow many bytes "
            "does the device send to others in one dispatch?"
        ),
        kind=lambda _: Number(unit="B"),
        truth=lambda d: d.bytes,
        why=lambda d, truth: (
            f"tokens · k · hidden · 2 bytes, of which 1/{d.devices} stays: {d.tokens:,} · {d.topk} · {d.hidden:,} · 2 "
            f"· {d.devices - 1}/{d.devices} = {units.bytes_(truth)}. The combine sends as much back, and the backward "
            "pass does both again: four times in all."
        ),
        mistakes=lambda d, truth: [
            Mistake(
                answer=truth * d.devices / (d.devices - 1),
                reason="Those that choose an expert of their own device stay where they are.",
            ),
            Mistake(answer=truth / d.topk, reason="A token is sent to each of its k experts."),
        ],
        hints=lambda _: (
            "How many rows does the device make of its tokens?",
            "tokens · k rows of hidden · 2 bytes, and a share of 1/devices stays at home.",
        ),
        code=lambda d: f"answer = {d.tokens} * {d.topk} * {d.hidden} * 2 * ({d.devices} - 1) / {d.devices}",
        premise="most rows leave their device",
        holds=lambda d: d.devices > 2,
    ),
    Exercise(
        id="11.2",
        title="The busiest device",
        draw=_load,
        question=lambda load: (
            f"After a dispatch {len(load.rows)} devices have these rows for their experts: {list(load.rows)}. A "
            "product of rows with an expert takes time in proportion to its rows.\n\nHow many times as long as with a "
            "balanced router do the experts take?"
        ),
        kind=lambda _: Number(tolerance=0.01),
        truth=lambda load: max(load.rows) / (sum(load.rows) / len(load.rows)),
        why=lambda load, truth: (
            f"All wait for the device with {max(load.rows):,} rows; balanced, each had "
            f"{sum(load.rows) / len(load.rows):,.1f}: {truth:.3f}. That is the *imbalance* of the planner "
            "(`--expert-imbalance`)."
        ),
        mistakes=lambda load, truth: [
            Mistake(answer=max(load.rows) / min(load.rows), reason="That is busiest over idlest; ask for the mean.")
        ],
        hints=lambda _: ("Who finishes last?", "The most rows over the mean of the rows."),
        code=lambda load: dedent(f"""\
            rows = {list(load.rows)}
            answer = max(rows) / (sum(rows) / len(rows))
            """),
        premise="one device has clearly more rows than the mean",
        holds=lambda load: busiest_over_mean(np.array([load.rows]), len(load.rows)) > 1.02,
    ),
    Exercise(
        id="11.3",
        title="Parameters that work",
        draw=lambda random: Pass(random.choice(_MIXTURES), 512 * random.randint(1, 16)),
        question=lambda p: (
            f"A block of {p.mixture.name} has {p.mixture.experts} experts, each three matrices of {p.mixture.hidden:,} "
            f"× {p.mixture.ffn:,}, and a token goes to {p.mixture.topk} of them.\n\nHow many FLOPs do the experts "
            f"spend on {p.tokens:,} tokens in the forward pass?"
        ),
        kind=lambda _: Number(unit="FLOP"),
        truth=lambda p: 2.0 * 3 * p.mixture.hidden * p.mixture.ffn * p.mixture.topk * p.tokens,
        why=lambda p, truth: (
            f"2 FLOPs for each token and element of {p.mixture.topk} · 3 matrices: {units.flops(truth)}. All experts "
            f"hold {units.count(3 * p.mixture.hidden * p.mixture.ffn * p.mixture.experts)} parameters, of which "
            f"{units.percent(p.mixture.active)} work for a token: a mixture has the memory of a large model and the "
            "time of a small one."
        ),
        mistakes=lambda p, truth: [
            Mistake(answer=truth / p.mixture.active, reason="That lets every token pass through all experts."),
            Mistake(answer=truth / 2, reason="A multiply-add is two FLOPs."),
        ],
        hints=lambda _: (
            "A token meets k experts; the others do nothing for it.",
            "2 FLOPs for each token and element of a matrix, three matrices an expert, k experts.",
        ),
        code=lambda p: f"answer = 2 * 3 * {p.mixture.hidden} * {p.mixture.ffn} * {p.mixture.topk} * {p.tokens}",
        premise="most experts do nothing for a token",
        holds=lambda p: p.mixture.active <= 0.25,
    ),
    Exercise(
        id="11.4",
        title="Where to put the experts",
        draw=lambda random: Dispatch(
            random.choice((4096, 8192, 16384)), random.choice((2, 4, 8)), random.choice((2048, 4096, 7168)), 8
        ),
        question=lambda d: (
            f"Eight devices share the experts of a block: each has {d.tokens:,} tokens of {d.hidden:,} numbers for the "
            f"{d.topk} best experts. Either the eight are one node of an `8x8:h100`, or one device of each of its "
            f"nodes. Inside a node a device sends {_link(inside=True)}; the network of a node moves "
            f"{_link(inside=False)}, of which collectives reach {units.percent(_REACHED)}, and its eight devices share "
            "it.\n\nHow many times as long as in the first case does an all-to-all take in the second?"
        ),
        kind=lambda _: Number(tolerance=0.05),
        truth=lambda d: _exchange_seconds(8, d) / _exchange_seconds(1, d),
        why=lambda d, truth: (
            f"Inside a node it takes {units.seconds(_exchange_seconds(1, d))}, between nodes "
            f"{units.seconds(_exchange_seconds(8, d))}: {truth:.3g} times as long, nearly the ratio of what a device "
            f"has, {_link(inside=True)} over {units.percent(_REACHED)} of an eighth of {_link(inside=False)}; the rest "
            "is waiting. So expert parallelism stays inside the node where it can."
        ),
        mistakes=lambda d, truth: [
            Mistake(answer=1.0, reason="The bytes are the same, but a device's share of the network is narrower."),
            Mistake(answer=truth / 8, reason="The eight devices of a node all send at once: each has an eighth."),
            Mistake(
                answer=truth * _REACHED, reason="That is with the whole line rate, which collectives do not reach."
            ),
            Mistake(answer=1 / truth, reason="That is the first case over the second."),
        ],
        hints=lambda _: (
            "Both send the same bytes; the times are nearly in the ratio of what each device can send in a second.",
            "Exactly: `group_seconds(StepKind.ALL_TO_ALL, bytes, group)` with `device_group(cluster, 8, 1)` for eight "
            "neighbours and `device_group(cluster, 8, 8)` for one of each node.",
        ),
        code=lambda d: dedent(f"""\
            from alpa_explore.cluster import Cluster
            from alpa_explore.cluster.group import device_group
            from alpa_explore.cost.group_collectives import group_seconds
            from alpa_explore.sharding.reshard import StepKind
            cluster, size = Cluster.parse("8x8:h100"), 2 * {d.tokens} * {d.topk} * {d.hidden}
            inside, between = (
                group_seconds(StepKind.ALL_TO_ALL, size, device_group(cluster, 8, stride)) for stride in (1, 8)
            )
            answer = between / inside
            """),
        premise="the ratio of the bandwidths that the question names is an answer within the tolerance",
        holds=lambda d: isclose(
            Cluster.parse("8x8:h100").inside_node.bandwidth
            / (_REACHED * Cluster.parse("8x8:h100").between_nodes.bandwidth / 8),
            _exchange_seconds(8, d) / _exchange_seconds(1, d),
            rel_tol=0.05,
        ),
    ),
)
"""In the order of their ids."""
