"""`warm_up_search`: the kernels of the search within a memory limit, compiled before a time limit runs."""

from __future__ import annotations

import math
import time

import numpy as np

from alpa_explore.intra_op.memory.price_search import price_search
from alpa_explore.intra_op.problem.memory_limit import Item, MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
from alpa_explore.iopddl import tuning
from alpa_explore.iopddl.anneal import anneal_within


def warm_up_search() -> None:
    """Load or compile what `solve_within` calls under a time limit: about 25 s of one core where nothing is on disk,
    much of a time limit of a minute."""
    problem, memory = _small_problem()
    # One step after the other is compiled; a time limit ends each call after the step that it is in.
    for _ in range(tuning.WARM_UP_ROUNDS):
        price_search(problem, memory, time.perf_counter() + tuning.WARM_UP_SECONDS)
        anneal_within(problem, memory, time.perf_counter() + tuning.WARM_UP_SECONDS)


def _small_problem() -> tuple[ShardingProblem, MemoryLimit]:
    """A chain of nodes with shortcuts, in which cheap strategies hold more than is allowed, and some pairs are
    forbidden."""
    rng = np.random.default_rng(0)
    nodes, size = 60, 4
    costs = tuple(rng.integers(0, 100, size).astype(float) for _ in range(nodes))
    edges = tuple((v - step, v) for v in range(1, nodes) for step in (1, 5) if v >= step)
    matrices = tuple(rng.integers(0, 100, (size, size)).astype(float) for _ in edges)
    for matrix in matrices:
        matrix[0, 1] = math.inf
    items = [Item(node=v, start=v, end=min(nodes, v + 20), usage=100.0 - costs[v]) for v in range(nodes)]
    least = MemoryLimit.of(items, 1.0).least_peak()
    problem = ShardingProblem(name="warm-up", node_costs=costs, edges=edges, edge_costs=matrices)
    return problem, MemoryLimit.of(items, 1.5 * least)
