"""Exercises of lessons 00 to 03: the tour, capture, the cluster with submeshes and logical meshes, collectives."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from alpa_explore.cluster import Cluster, LogicalMesh, Submesh, logical_mesh, submeshes
from alpa_explore.cluster.device import Link
from alpa_explore.cost.collectives import axis_seconds, collective_seconds
from alpa_explore.course.examples import graph_of
from alpa_explore.figures.course.planning.message_sizes import half_bytes
from alpa_explore.figures.course.planning.ways import WAYS, Way
from alpa_explore.graph import Phase, TrainingGraph
from alpa_explore.models.catalog import entry
from alpa_explore.models.configs import DecoderConfig
from alpa_explore.sharding.reshard import StepKind

STATE_BYTES = 18
"""Bytes of a parameter in mixed precision with Adam: weight, gradient, weight in float32, two moments."""
_MODELS = ("llama-2-13b", "llama-3-8b", "llama-3-70b", "qwen3-14b", "qwen3-32b")


class Place(NamedTuple):
    """A device in one of the ways of the figure, and what is asked of it."""

    way: int
    device: int
    asked: str
    """'samples' or 'layers'."""

    @property
    def of(self) -> Way:
        """The way."""
        return WAYS[self.way]

    @property
    def degree(self) -> int:
        """By how much what is asked is divided."""
        return self.of.dp if self.asked == "samples" else self.of.pp


def _place(random: Random) -> Place:
    """A device in a combination of two ways."""
    ways = [number for number, way in enumerate(WAYS) if 2 in (way.dp, way.tp, way.pp)]
    return Place(way=random.choice(ways), device=random.randrange(4), asked=random.choice(("samples", "layers")))


_WIDTHS = (64, 128, 128, 128, 16)
"""Of the catalogue's mlp-tiny: features, three hidden layers, classes."""
_BATCH = 64
"""Its global batch."""
_DECODERS = ("llama-2-7b", "llama-2-13b", "llama-3-8b", "llama-3-70b", "llama-3.2-1b", "llama-3.2-3b")


def _graph(samples: int) -> TrainingGraph:
    return graph_of("mlp-tiny", _BATCH // samples)


def _products(samples: int, phase: Phase) -> int:
    """FLOPs of the products of a phase: as many times those that were captured for one sample."""
    return samples * _captured(1, phase)


def _captured(samples: int, phase: Phase) -> int:
    return sum(o.flops for o in _graph(samples).operators if o.phase is phase and "mm" in o.kind)


def _config(model: str) -> DecoderConfig:
    config = entry(model).config
    assert isinstance(config, DecoderConfig)
    return config


def _block_parameters(model: str) -> int:
    """Of one block."""
    config = _config(model)
    return config.with_periods(2).parameter_count - config.with_periods(1).parameter_count


class Shape(NamedTuple):
    """A cluster of V100 as an array, in which axis 0 crosses the network."""

    nodes: int
    per_node: int
    rows: int
    mebibytes: int

    @property
    def columns(self) -> int:
        """Devices of a row."""
        return self.nodes * self.per_node // self.rows

    @property
    def cluster(self) -> Cluster:
        """The preset."""
        return Cluster.parse(f"{self.nodes}x{self.per_node}:v100")

    @property
    def mesh(self) -> LogicalMesh:
        """All devices as this array."""
        return logical_mesh(self.cluster, Submesh(self.nodes, self.per_node), (self.rows, self.columns))

    @property
    def seconds(self) -> float:
        """Of an all-reduce along axis 0."""
        return axis_seconds(StepKind.ALL_REDUCE, 2**20 * self.mebibytes, self.mesh, 0)

    def seconds_at(self, bandwidth: float) -> float:
        """The same if a group had this bandwidth."""
        p, latency = self.rows, self.mesh.latency_seconds[0]
        return 2 * (p - 1) * (latency + 2**20 * self.mebibytes / p / bandwidth)


def _shape(random: Random) -> Shape:
    nodes, per_node = random.choice((2, 4, 8)), random.choice((4, 8))
    rows = random.choice([rows for rows in (2, 4, 8, 16) if nodes <= rows <= nodes * per_node // 2])
    return Shape(nodes=nodes, per_node=per_node, rows=rows, mebibytes=random.choice((64, 128, 256)))


def _sizes(cluster: Cluster) -> list[int]:
    return [submesh.devices for submesh in submeshes(cluster)]


_MANY = 10
"""Gradients of exercise 03.3."""


class Ring(NamedTuple):
    """A message and the ring that it goes round."""

    devices: int
    mebibytes: int
    gigabytes_per_second: int
    microseconds: int

    @property
    def bytes(self) -> int:
        """Of the tensor on every device."""
        return self.mebibytes * 2**20

    @property
    def beta(self) -> float:
        """Seconds a byte."""
        return 1e-9 / self.gigabytes_per_second

    @property
    def alpha(self) -> float:
        """Seconds a message."""
        return 1e-6 * self.microseconds

    def seconds(self, kind: StepKind) -> float:
        """Of a collective on this ring, by the cost model."""
        return collective_seconds(kind, self.bytes, self.devices, 1 / self.beta, self.alpha)


def _ring(random: Random) -> Ring:
    return Ring(
        devices=random.choice((4, 8, 16)),
        mebibytes=random.choice((64, 128, 256)),
        gigabytes_per_second=random.choice((25, 50, 100)),
        microseconds=random.choice((5, 10, 20)),
    )


def _half(ring: Ring) -> float:
    """n½: bytes at which an all-reduce waits as long as it moves bytes."""
    link = Link(bandwidth=1 / ring.beta, latency_seconds=ring.alpha)
    return half_bytes(ring.devices, link)


def _saved(ring: Ring) -> float:
    """Seconds that one bucket saves over an all-reduce for each of its gradients."""
    link = 1 / ring.beta, ring.alpha
    together = collective_seconds(StepKind.ALL_REDUCE, ring.bytes, ring.devices, *link)
    return _MANY * collective_seconds(StepKind.ALL_REDUCE, ring.bytes / _MANY, ring.devices, *link) - together
