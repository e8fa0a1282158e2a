"""Lower bounds on the least costs of layer ranges that are not composed, from a few short runs of layers.

Let W(i, k) be the least cost of the layers i..k by themselves: of their operators, and of the resharding between these,
without what enters or leaves, and without the parameters that other layers touch, too. No cost is negative, so for any
partition of a range

    least cost of i..j  ≥  Σ W(part)

W is bounded for the runs of 2^n layers that begin at a multiple of 2^n; the best partition follows by dynamic
programming. What is lost is the resharding where parts meet: runs double until a longer one raises the bound by less
than RUN_GAP. A range of all layers takes seconds to build and bound; a mesh has L · (L + 1) / 2 ranges, and equal runs
are bounded once.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from alpa_explore.cost.model import CostModel
from alpa_explore.intra_op import tuning
from alpa_explore.intra_op.composition.cut_blocks import Range
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.stage_graph import StageGraph, StageSlicer
from alpa_explore.intra_op.stage.stage_problem import NodeKind
from alpa_explore.numerics.arrays import Floats


def range_bounds(
    slicer: StageSlicer, model: CostModel, ranges: Collection[Range], inverse_b: float
) -> dict[Range, float]:
    """A lower bound on microbatch + iteration × `inverse_b` seconds of every choice of each of these ranges; inf where
    no choice is legal."""
    layered = slicer.layered
    layers, spread = layered.num_layers, [{layered.layer_of[o] for o in users} for users in layered.parameter_users]
    bounds: Floats = np.zeros((layers, layers))
    """[first, last]"""
    known: dict[tuple[object, ...], float] = {}
    growing: set[Range] = set()
    """The runs whose bounds are higher than those of their halves."""
    for size in (2**n for n in range(layers.bit_length())):
        for first in range(0, layers - size + 1, size):
            last, middle = first + size - 1, first + size // 2
            halves = (first, middle - 1), (middle, last)
            if size > 1 and growing.isdisjoint(halves):
                continue
            if not any(i <= first and last <= j for i, j in ranges):
                continue
            stage = slicer(first, last)
            inside = set(range(first, last + 1))
            shared = tuple(i for i, position in enumerate(stage.parameters) if not spread[position] <= inside)
            key = stage.structure_key, shared
            if key not in known:
                known[key] = _bound_by_itself(stage, {stage.parameters[i] for i in shared}, model, inverse_b)
            bounds[first, last] = known[key]
            if size == 1 or known[key] > (1 + tuning.RUN_GAP) * sum(bounds[half] for half in halves):
                growing.add((first, last))
    for length in range(2, layers + 1):
        for first in range(layers - length + 1):
            last = first + length - 1
            parts = bounds[first, first:last] + bounds[first + 1 : last + 1, last]
            bounds[first, last] = max(bounds[first, last], float(parts.max()))
    return {r: float(bounds[r]) for r in ranges}


def _bound_by_itself(stage: StageGraph, shared: Collection[int], model: CostModel, inverse_b: float) -> float:
    """Lower bound on W of the module's text; `shared` are the parameters that other layers touch."""
    problem = build_stage_problem(replace(stage, sinks=frozenset()), model)
    priced = problem.at(inverse_b=inverse_b, memory_price=0.0, microbatches_held=1)
    outside = [
        node.kind is NodeKind.SOURCE or (node.kind is not NodeKind.OPERATOR and node.subject in shared)
        for node in problem.nodes
    ]
    kept = [i for i, (a, b) in enumerate(priced.edges) if not (outside[a] or outside[b])]
    by_itself = ShardingProblem(
        name=priced.name,
        node_costs=tuple(np.zeros(len(c)) if out else c for c, out in zip(priced.node_costs, outside, strict=True)),
        edges=tuple(priced.edges[i] for i in kept),
        edge_costs=tuple(priced.edge_costs[i] for i in kept),
    )
    solution = solve(by_itself, gap=tuning.RUN_GAP)
    return math.inf if solution.status is Status.INFEASIBLE else solution.bound
