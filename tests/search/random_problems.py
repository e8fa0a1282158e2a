"""Random small problems, and their best pipelines by brute force: every partition, over exact costs of stages.

The cost of a stage is the least over its logical meshes and versions, each a problem of its own that is solved to the
proof, by HiGHS and, where memory is short, by `solve_limited`: nothing of composition, price books, lower bounds or the
search takes part.
"""

import itertools
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

import alpa_explore as ax
from alpa_explore.cluster import LogicalMesh, Submesh, logical_meshes, submeshes
from alpa_explore.errors import LayeringError
from alpa_explore.graph import TrainingGraph
from alpa_explore.intra_op.problem.solution import ShardingSolution, Status
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.solve_limited import solve_limited
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.stage_graph import StageGraph
from alpa_explore.intra_op.stage.stage_problem import StageProblem
from alpa_explore.planner.default_layering import clustered
from alpa_explore.pricing.tasks import cost_model, slicer
from alpa_explore.search.stages.versions import layered_versions
from alpa_explore.sharding.splits import with_discovered_splits

CLUSTERS = ("1x2:v100", "2x1:v100", "1x3:v100", "3x1:v100", "2x2:v100")
SIZES = (96, 512, 1024, 1536, 4096)


class Net(nn.Module):
    """Linear layers in a row, some of them with a weight of an earlier one, and what is drawn between them."""

    def __init__(self, rng: np.random.Generator, most: int) -> None:
        super().__init__()
        self.width = int(rng.choice(SIZES))
        self.kinds = [
            str(rng.choice(("plain", "residual", "gate", "norm", "tied")))
            for _ in range(rng.integers(most - 2, most + 1))
        ]
        self.weights = nn.ModuleList(
            [nn.Linear(self.width, self.width, bias=bool(rng.integers(2))) for _ in self.kinds]
        )
        norms = [nn.LayerNorm(self.width) if kind == "norm" else nn.Identity() for kind in self.kinds]
        self.norms = nn.ModuleList(norms)
        inner = int(rng.choice(SIZES))
        self.wide = nn.ModuleList([nn.Linear(self.width, inner), nn.Linear(inner, self.width)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for kind, own, norm in zip(self.kinds, self.weights, self.norms, strict=True):
            y = own(x)
            if kind == "tied":
                x = torch.relu(nn.functional.linear(y, self.weights[0].weight))
            elif kind == "gate":
                x = y * torch.sigmoid(x)
            elif kind == "norm":
                x = norm(torch.relu(y))
            else:
                x = x + torch.relu(y) if kind == "residual" else torch.relu(y)
        return self.wide[1](torch.relu(self.wide[0](x))).square().mean()


@dataclass(frozen=True, eq=False)
class RandomProblem:
    """A tiny model, a cluster, and what is asked of the planner."""

    graph: TrainingGraph
    cluster: ax.Cluster
    layers: int
    deltas: tuple[float, float]
    """Of the plan, and another."""
    counts: tuple[int, int]
    """B of the plan, and another."""
    rooms: tuple[float, float]
    """Memory of a device, as shares of the bytes of the fullest one without a limit; the second is less."""
    options: ax.PipelineOptions
    rematerialization: bool | str

    def with_memory(self, memory_bytes: int | None) -> ax.Cluster:
        """The cluster; with `memory_bytes` of a device where they are given."""
        device = self.cluster.device
        return replace(self.cluster, device=replace(device, memory_bytes=memory_bytes or device.memory_bytes))


def random_problem(seed: int, *, large: bool = False) -> RandomProblem:
    """Of two layerings that differ, where some delta gives another one; a `large` one takes brute force minutes."""
    rng = np.random.default_rng(seed)
    with torch.device("meta"):
        net = Net(rng, most=4 if large else 3)
        inputs = torch.empty(int(rng.choice((8, 96, 1024, 4096))), net.width)
    graph = with_discovered_splits(ax.capture(net, (inputs,)))
    rematerialization = (False, False, True, "auto")[rng.integers(4)]
    few = CLUSTERS[:2] if rematerialization == "auto" or (len(net.kinds) > 2 and not large) else CLUSTERS
    layers, deltas = int(rng.integers(2, 5)), dict[tuple[int, ...], float]()
    for delta in rng.permutation((0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 3.0)):
        with suppress(LayeringError):
            deltas.setdefault(clustered(graph, layers, float(delta)).layer_of_forward, float(delta))
    first, *others = deltas.values()
    return RandomProblem(
        graph=graph,
        cluster=ax.Cluster.parse(str(rng.choice(few))),
        layers=layers,
        deltas=(first, others[0] if others else first),
        counts=tuple(int(b) for b in rng.choice((1, 2, 4, 7, 32), 2, replace=False)),
        rooms=tuple(float(share) for share in sorted(rng.uniform(0.45, 1.02, 2), reverse=True)),
        options=ax.PipelineOptions(schedule=str(rng.choice(("1f1b", "gpipe"))), paper=True),
        rematerialization=rematerialization,
    )


class ExactCosts:
    """The least seconds of the stages of one layering, from a solve of each problem at each limit."""

    def __init__(self, problem: RandomProblem, delta: float) -> None:
        self.problem = problem
        layering = clustered(problem.graph, problem.layers, delta)
        self.versions = layered_versions(
            problem.graph, layering.layer_of_forward, problem.rematerialization, software=problem.cluster.software
        )
        self._problems: dict[tuple[object, ...], StageProblem] = {}
        self._seconds: dict[tuple[object, ...], float] = {}
        self._fastest: dict[tuple[object, ...], ShardingSolution] = {}

    def stage(self, first: int, last: int, piece: Submesh, held: int, b: int, memory: int) -> float:
        """Of the fastest choice that fits with so many microbatches held; inf where none does."""
        return min(
            self._choice(slicer(layered)(first, last), mesh.squeezed(), held, b, memory)
            for layered in self.versions
            for mesh in logical_meshes(self.problem.cluster, piece)
        )

    def _choice(self, stage: StageGraph, mesh: LogicalMesh, held: int, b: int, memory: int) -> float:
        same = stage.structure_key, mesh
        if same not in self._problems:
            self._problems[same] = build_stage_problem(stage, cost_model(self.problem.cluster.device, mesh))
        built = self._problems[same]
        assert built.adds_up
        priced = built.at(inverse_b=1 / b, memory_price=0.0, microbatches_held=held)
        if (*same, b) not in self._fastest:
            self._fastest[*same, b] = _proven(solve(priced, "ilp"))
        fastest = self._fastest[*same, b]
        if not fastest.choices or built.totals(fastest.choices).peak_bytes(held) <= memory:
            return fastest.objective
        key = *same, b, held, memory
        if key not in self._seconds:
            limit = built.memory_limit(held, memory)
            overflows = limit.least_peak() > limit.limit
            self._seconds[key] = math.inf if overflows else _proven(solve_limited(priced, limit)).objective
        return self._seconds[key]

    def best(self, b: int, memory: int) -> float:
        """Seconds of the best pipeline: Σt + (B − 1) max t; inf where none fits."""
        layers, best = self.problem.layers, math.inf
        for depth in range(1, layers + 1):
            for cuts in itertools.combinations(range(1, layers), depth - 1):
                ranges = list(itertools.pairwise((0, *cuts, layers)))
                for pieces in itertools.product(submeshes(self.problem.cluster), repeat=depth):
                    if sum(piece.devices for piece in pieces) == self.problem.cluster.devices:
                        paid = self._stages(ranges, pieces, b, memory)
                        best = min(best, sum(paid) + (b - 1) * max(paid))
        return best

    def _stages(self, ranges: Sequence[tuple[int, int]], pieces: Sequence[Submesh], b: int, memory: int) -> list[float]:
        """Seconds of the stages of a pipeline up to one for which nothing fits."""
        paid = []
        for place, ((first, end), piece) in enumerate(zip(ranges, pieces, strict=True)):
            held = b if self.problem.options.schedule == "gpipe" else min(len(ranges) - place, b)
            paid.append(self.stage(first, end - 1, piece, held, b, memory))
            if paid[-1] == math.inf:
                break
        return paid


def _proven(solution: ShardingSolution) -> ShardingSolution:
    assert solution.status in (Status.OPTIMAL, Status.INFEASIBLE)
    return solution
