"""Plans, graphs and problems that exercises and lessons share, made once per process: a catalogue model planned or
captured, a model of a few blocks, a whole graph as one stage, and an MLP as a sharding problem of two nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from alpa_explore.cluster import Cluster, Submesh, logical_mesh
from alpa_explore.cost.resharding import reshard_table
from alpa_explore.formulations.comparison import StageInstance
from alpa_explore.graph import TrainingGraph
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.layering import cluster_operators
from alpa_explore.models.catalog import entry
from alpa_explore.models.configs import MLPConfig, WideResNetConfig
from alpa_explore.planner.interface import plan as plan_anew
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.plans.plan import Plan
from alpa_explore.sharding.spec import PARTIAL, REPLICATE, Spec
from alpa_explore.tracing.catalogue import catalogue_graph

_REPLICATED: Spec = (REPLICATE,)
_PENDING: Spec = (PARTIAL,)
_ROWS, _COLUMNS = (0,), (1,)
_STRATEGIES: dict[str, tuple[Spec, Spec]] = {
    "rows": (_ROWS, _ROWS),
    "columns": (_REPLICATED, _COLUMNS),
    "inner": (_COLUMNS, _PENDING),
}
"""Strategy of a product on one mesh axis -> the spec of the activation that it reads, and of the one it writes. The
weight is whole for 'rows', divided by columns for 'columns', and by rows for 'inner'."""
_BYTES = 2
"""Of an element in bfloat16."""


@lru_cache(maxsize=8)
def blocks_of(model: str, blocks: int, samples: int = 1, sequence: int | None = None) -> TrainingGraph:
    """A catalogue model with fewer blocks, captured for so many samples; once per process."""
    whole = entry(model, sequence)
    assert not isinstance(whole.config, WideResNetConfig | MLPConfig), "a model of equal blocks"
    fewer = replace(whole, name=f"{blocks} of {model}", config=whole.config.with_periods(blocks))
    return replace(catalogue_graph(fewer, samples), name=f"{model}, {blocks} block{'s' * (blocks > 1)}", recipe=None)


def one_stage(graph: TrainingGraph, cluster: str, shape: tuple[int, int], num_microbatches: int = 8) -> StageInstance:
    """All of a graph as one stage on a whole cluster, seen as a logical mesh of this shape."""
    whole = Cluster.parse(cluster)
    mesh = logical_mesh(whole, Submesh(whole.nodes, whole.devices_per_node), shape).squeezed()
    layering = cluster_operators(graph, 1, delta=0.0)
    stage = slice_stages(assign_layers(graph, layering.layer_of_forward))(0, 0)
    return StageInstance(stage=stage, device=whole.device, mesh=mesh, inverse_b=1 / num_microbatches)


@dataclass(frozen=True, slots=True, kw_only=True)
class MLP:
    """Two products on the devices of one node: activations [tokens, hidden] → [tokens, ffn] → [tokens, hidden]."""

    cluster: str
    tokens: int
    """Of a microbatch."""
    hidden: int = 4096
    ffn: int = 14336
    num_microbatches: int = 16

    @property
    def names(self) -> list[list[str]]:
        """For the workbench: the nodes and their strategies."""
        return [["up", *_STRATEGIES], ["down", *_STRATEGIES]]

    @property
    def problem(self) -> ShardingProblem:
        """Seconds of communication in the forward and the backward pass of a microbatch, and of gradients of weights:
        their all-reduce, divided by B. Both ends of the MLP are replicated, as in tensor parallelism. Computing takes
        equally long for each strategy and is left out, as in the paper."""
        cluster = Cluster.parse(self.cluster)
        mesh = logical_mesh(cluster, Submesh(1, cluster.devices), (1, cluster.devices)).squeezed()

        def seconds(shape: tuple[int, int], source: Spec, target: Spec) -> float:
            table = reshard_table(shape, _BYTES * shape[0] * shape[1], mesh)
            return float(table.seconds[table.index[source], table.index[target]])

        weight, ends, inner = (self.hidden, self.ffn), (self.tokens, self.hidden), (self.tokens, self.ffn)
        sync = seconds(weight, _PENDING, _REPLICATED) / self.num_microbatches
        own = [sync if name == "rows" else 0.0 for name in _STRATEGIES]
        reads, writes = zip(*_STRATEGIES.values(), strict=True)
        up = [seconds(ends, _REPLICATED, r) + seconds(ends, _of_gradient(r), _REPLICATED) for r in reads]
        down = [seconds(ends, w, _REPLICATED) + seconds(ends, _REPLICATED, _of_gradient(w)) for w in writes]
        edge = [
            [seconds(inner, w, r) + seconds(inner, _of_gradient(r), _of_gradient(w)) for r in reads] for w in writes
        ]
        return ShardingProblem(
            name="an MLP",
            node_costs=(np.add(up, own), np.add(down, own)),
            edges=((0, 1),),
            edge_costs=(np.array(edge),),
        )


def _of_gradient(spec: Spec) -> Spec:
    """Of the gradient of a tensor in this spec: a part has the gradient of its part; devices that read all of it have a
    summand each, and a summand has the gradient of the sum."""
    dual = {_REPLICATED: _PENDING, _PENDING: _REPLICATED}
    return dual.get(spec, spec)


@lru_cache(maxsize=64)
def planned(model: str, cluster: str, **options: Any) -> Plan:
    """`ax.plan` of a catalogue model, once per process for equal options, which must be hashable."""
    return plan_anew(model, cluster, **options)


@lru_cache(maxsize=16)
def graph_of(model: str, num_microbatches: int) -> TrainingGraph:
    """The captured graph of one microbatch of a catalogue model, once per process."""
    return microbatch_graph(model, num_microbatches)
