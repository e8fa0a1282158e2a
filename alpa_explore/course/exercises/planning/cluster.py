"""Exercises of lesson 02: the cluster, submeshes and logical meshes."""

from __future__ import annotations

from random import Random
from textwrap import dedent
from typing import NamedTuple

from alpa_explore import units
from alpa_explore.cluster import Cluster, LogicalMesh, Submesh, logical_mesh, submeshes
from alpa_explore.cost.collectives import axis_seconds
from alpa_explore.course.definition import Exercise, Mistake
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
        title="The bandwidth of an axis",
        draw=_shape,
        question=lambda shape: (
            f"{shape.nodes} nodes of {shape.per_node} V100; inside a node 120 GB/s per device, between nodes 3.125 "
            f"GB/s per node. The devices are numbered node by node and seen as an array of {shape.rows} rows and "
            f"{shape.columns} columns, row by row.\n\nWhich bandwidth has each group along axis 0, in bytes per second?"
        ),
        kind=lambda _: Number(unit="B/s"),
        truth=lambda shape: shape.mesh.bandwidth[0],
        why=lambda shape, truth: (
            f"Devices of a column are {shape.columns} apart, and {shape.rows} of them reach into other nodes. "
            f"min(stride, M) = min({shape.columns}, {shape.per_node}) = {min(shape.columns, shape.per_node)} groups of "
            f"a node share its 3.125 GB/s: {units.bytes_per_second(truth)} each."
        ),
        mistakes=lambda shape, _: [
            Mistake(answer=3.125e9, reason="That is a node's bandwidth. How many groups share it?"),
            Mistake(answer=120e9, reason="That is the link inside a node. These groups leave their node."),
        ],
        hints=lambda shape: (
            "Do the groups of axis 0 stay inside a node?",
            f"Neighbours in a column are {shape.columns} devices apart. How many groups does one node take part in, "
            "and send out for?",
            f"Divide 3.125 GB/s by the smaller of {shape.columns} and {shape.per_node}.",
        ),
        code=lambda shape: f"answer = 3.125e9 / min({shape.columns}, {shape.per_node})\n",
        premise="axis 0 crosses the network, which several groups share",
        holds=lambda shape: shape.mesh.bandwidth[0] < shape.cluster.between_nodes.bandwidth == 3.125e9,
    ),
    Exercise(
        id="02.2",
        title="Submeshes",
        draw=_clusters,
        question=lambda cluster: (
            f"A cluster has {cluster.nodes} nodes of {cluster.devices_per_node} devices. How many devices can a stage "
            "have? List all numbers that its submeshes have."
        ),
        kind=lambda _: Items(of="numbers of devices"),
        truth=_sizes,
        why=lambda cluster, truth: (
            f"Inside a node a power of two: {', '.join(str(s.devices) for s in submeshes(cluster) if s.nodes == 1)}. "
            f"Beyond, any number of whole nodes up to {cluster.nodes}: all in all {', '.join(map(str, truth))}."
        ),
        mistakes=lambda cluster, truth: [
            Mistake(
                answer=[n for n in truth if n & (n - 1) == 0],
                reason="Inside a node the number is a power of two. But any number of whole nodes is allowed.",
            ),
            Mistake(
                answer=list(range(1, cluster.devices + 1)),
                reason="Not every number: cut like that, stages would leave gaps that none fits into.",
            ),
        ],
        hints=lambda cluster: (
            "Two kinds: a part of one node, or whole nodes.",
            "A part of a node has 1, 2, 4, … devices.",
            f"Whole nodes: {cluster.devices_per_node} times 1, 2, …, {cluster.nodes}.",
        ),
        code=lambda cluster: dedent(f"""\
            N, M = {cluster.nodes}, {cluster.devices_per_node}
            inside = [2**k for k in range(10) if 2**k <= M]
            answer = sorted({{*inside, *(n * M for n in range(1, N + 1))}})
            """),
        premise="some submeshes are no power of two",
        holds=lambda cluster: any(n & (n - 1) for n in _sizes(cluster)),
    ),
    Exercise(
        id="02.3",
        title="An all-reduce along the slow axis",
        draw=_shape,
        question=lambda shape: (
            f"{shape.nodes} nodes of {shape.per_node} V100 as an array of {shape.rows} × {shape.columns}. All groups "
            f"along axis 0 ({shape.rows} devices each) all-reduce {shape.mebibytes} MiB at the same time. A message "
            "between nodes waits 15 µs. How long does it take?\n\nAn all-reduce among p devices has 2 (p − 1) steps, "
            "and a step takes latency + bytes / p / bandwidth (lesson 03)."
        ),
        kind=lambda _: Number(unit="s"),
        truth=lambda shape: shape.seconds,
        why=lambda shape, truth: (
            f"2 · {shape.rows - 1} · (15 µs + {shape.mebibytes} MiB / {shape.rows} / "
            f"{units.bytes_per_second(shape.mesh.bandwidth[0])}) = {units.seconds(truth)}."
        ),
        mistakes=lambda shape, _: [
            Mistake(
                answer=shape.seconds_at(3.125e9),
                reason="That would be so if one group had the network to itself. All groups communicate at once.",
            ),
            Mistake(
                answer=2 * (shape.rows - 1) * (15e-6 + 2**20 * shape.mebibytes / shape.mesh.bandwidth[0]),
                reason="A step moves one chunk, 1/p of the bytes, not all of them.",
            ),
        ],
        hints=lambda shape: (
            "Which bandwidth has a group? See exercise 02.1.",
            f"There are 2 · ({shape.rows} − 1) steps, each with {shape.mebibytes} MiB / {shape.rows}.",
            "A MiB has 2²⁰ bytes, a GB 10⁹.",
        ),
        code=lambda shape: dedent(f"""\
            p = {shape.rows}
            bandwidth = 3.125e9 / min({shape.columns}, {shape.per_node})
            answer = 2 * (p - 1) * (15e-6 + {shape.mebibytes} * 2**20 / p / bandwidth)
            """),
        premise="the groups share the network, and a message waits 15 µs",
        holds=lambda shape: shape.seconds > 1.5 * shape.seconds_at(3.125e9) and shape.mesh.latency_seconds[0] == 15e-6,
    ),
)
"""In the order of their ids."""
