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


def legal_choices(problem: ShardingProblem) -> list[tuple[int, ...]]:
    """All choices without a forbidden entry, in the order of `itertools.product`."""
    sizes = [len(costs) for costs in problem.node_costs]
    every = np.indices(sizes).reshape(len(sizes), -1)
    legal = np.ones(every.shape[1], dtype=bool)
    for choice, costs in zip(every, problem.node_costs, strict=True):
        legal &= costs[choice] < FORBIDDEN
    for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        legal &= matrix[every[a], every[b]] < FORBIDDEN
    return list(map(tuple, every[:, legal].T.tolist()))
