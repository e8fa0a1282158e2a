"""Sharding problems that are drawn at random."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem


def drawn(
    sizes: Sequence[int], edges: Iterable[tuple[int, int]], costs: Callable[..., np.ndarray], name: str = "random"
) -> ShardingProblem:
    """Nodes with so many strategies, with `costs(*shape)` of each node and then of each edge."""
    edges = tuple(edges)
    node_costs = tuple(costs(size) for size in sizes)
    edge_costs = tuple(costs(sizes[a], sizes[b]) for a, b in edges)
    return ShardingProblem(name=name, node_costs=node_costs, edges=edges, edge_costs=edge_costs)


def whole_numbers(rng: np.random.Generator, most: int, forbidden: float) -> Callable[..., np.ndarray]:
    """Costs below `most`, of which this share is forbidden."""

    def costs(*shape: int) -> np.ndarray:
        values = rng.integers(0, most, shape).astype(float)
        values[rng.random(shape) < forbidden] = FORBIDDEN
        return values

    return costs
