"""Exercises of lesson 02: the cluster, submeshes and logical meshes."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from alpa_explore.cluster import Cluster, LogicalMesh, Submesh, logical_mesh, submeshes
from alpa_explore.cost.collectives import axis_seconds
from alpa_explore.course.definition import Exercise
from alpa_explore.course.kinds import Items, Number
from alpa_explore.sharding.reshard import StepKind


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


def _clusters(random: Random) -> Cluster:
    return Cluster.parse(f"{random.randint(3, 10)}x{random.choice((2, 4, 8))}:v100")


def _sizes(cluster: Cluster) -> list[int]:
    return [submesh.devices for submesh in submeshes(cluster)]


EXERCISES = (
    Exercise(
        id="02.1",
        draw=_shape,
        kind=lambda _: Number(unit="B/s"),
        truth=lambda shape: shape.mesh.bandwidth[0],
        values={"together": lambda n, _: min(n.columns, n.per_node)},
        wrong=lambda shape, _: (3.125e9, 120e9),
        holds=lambda shape: shape.mesh.bandwidth[0] < shape.cluster.between_nodes.bandwidth == 3.125e9,
    ),
    Exercise(
        id="02.2",
        draw=_clusters,
        kind=lambda _: Items(of="numbers of devices"),
        truth=_sizes,
        values={"sizes": lambda n, _: ", ".join(str(s.devices) for s in submeshes(n) if s.nodes == 1)},
        wrong=lambda cluster, truth: ([n for n in truth if n & (n - 1) == 0], list(range(1, cluster.devices + 1))),
        holds=lambda cluster: any(n & (n - 1) for n in _sizes(cluster)),
    ),
    Exercise(
        id="02.3",
        draw=_shape,
        kind=lambda _: Number(unit="s"),
        truth=lambda shape: shape.seconds,
        values={"others": lambda n, _: n.rows - 1},
        wrong=lambda shape, _: (
            shape.seconds_at(3.125e9),
            2 * (shape.rows - 1) * (15e-6 + 2**20 * shape.mebibytes / shape.mesh.bandwidth[0]),
        ),
        holds=lambda shape: shape.seconds > 1.5 * shape.seconds_at(3.125e9) and shape.mesh.latency_seconds[0] == 15e-6,
    ),
)
"""In the order of their ids."""
