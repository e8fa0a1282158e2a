"""`Walk`: a choice on its way through the search, with all that the kernels keep up beside it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.problem.timeline import Timeline, timeline
from alpa_explore.iopddl import tuning
from alpa_explore.iopddl.anneal_kernels import anneal, anneal_chains
from alpa_explore.iopddl.field_kernels import Around, Graph, cost_of, fill, give_way, put
from alpa_explore.iopddl.profile_kernels import BLOCK_BITS, Profile, Usage, fullest, profile_of
from alpa_explore.iopddl.tree_kernels import anneal_trees
from alpa_explore.numerics.arrays import Floats, Ints, entries_of_runs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchProblem:
    """What does not change during a search."""

    problem: ShardingProblem
    graph: Graph
    times: Timeline
    usage: Usage
    free: Ints
    """The nodes with several strategies."""
    ceiling: float
    """What a forbidden entry counts; no legal one reaches it."""
    noise: Floats

    @staticmethod
    def of(problem: ShardingProblem, memory: MemoryLimit) -> SearchProblem:
        """The instance of a search for a choice within `memory`."""
        sizes = np.array([len(costs) for costs in problem.node_costs], dtype=np.int64)
        ceiling = tuning.FORBIDDEN_FACTOR * max(_largest_legal(problem), tuning.LEAST_CEILING)
        places = (np.arange(tuning.NOISE_QUANTILES) + 0.5) / tuning.NOISE_QUANTILES
        times = timeline(memory, sizes.tolist())
        return SearchProblem(
            problem=problem,
            graph=graph_of(problem, ceiling),
            times=times,
            usage=usage_of(times),
            free=np.flatnonzero(sizes > 1),
            ceiling=ceiling,
            noise=-np.log(-np.log(places)),
        )


def _largest_legal(problem: ShardingProblem) -> float:
    tables = {id(table): table for table in (*problem.node_costs, *problem.edge_costs)}
    return max((float(t[t < FORBIDDEN].max(initial=0.0)) for t in tables.values()), default=0.0)


class Walk:
    """Mutable. After `price` and `weigh`, `field` and `profile` are those of `choices`; moves keep them up."""

    def __init__(self, instance: SearchProblem, choices: Ints, seed: int) -> None:
        self.instance = instance
        self.choices: Ints = choices
        self.field: Floats = np.empty(instance.graph[0][-1])
        blocks = -(-len(instance.times.room) // (1 << BLOCK_BITS))
        self.profile: Profile = np.empty(len(instance.times.room)), np.empty(blocks), np.empty(blocks)
        self.state = np.array([0x9E3779B97F4A7C15 * (2 * seed + 1) % 2**64, 0], dtype=np.uint64)

    def price(self, prices: Floats) -> None:
        """The field at these prices of a byte at each time."""
        until = np.concatenate([[0.0], np.cumsum(prices)])
        fill(self.instance.graph, self.instance.usage, until, self.choices, self.field)

    def weigh(self) -> float:
        """The profile of `choices`, summed up anew; returns by how much it exceeds the limit."""
        profile_of(self.instance.usage, self.instance.times.room, self.choices, self.profile)
        return self.above()

    def above(self) -> float:
        """By how much the profile that is kept up exceeds the limit."""
        return float(fullest(self.profile)[1])

    def cost(self) -> tuple[float, bool]:
        """The cost of `choices`, forbidden entries at the ceiling, and whether there is none."""
        cost, legal = cost_of(self.instance.graph, self.choices, self.instance.ceiling)
        return float(cost), bool(legal)

    def move(self, moves: int, temperature: float) -> None:
        """About `moves` moves of nodes in trees, and of chains and single nodes the shares that `tuning` says; none
        exceeds the limit."""
        self.trees(moves, temperature)
        self.chains(moves, temperature)
        self.singles(moves, temperature)

    def singles(self, moves: int, temperature: float) -> None:
        """Moves of single nodes, beside `moves` of nodes in trees."""
        anneal(self._around, temperature, int(tuning.SINGLES * moves), self.state)

    def trees(self, moves: int, temperature: float) -> None:
        """Moves of about `moves` nodes in trees."""
        limits = tuning.LARGEST_TREE, tuning.LONGEST_TREE_REPAIR, tuning.SAMPLES
        anneal_trees(self._around, temperature, moves, limits, self.instance.noise, self.state)

    def chains(self, moves: int, temperature: float) -> None:
        """Chains, beside `moves` moves of nodes in trees."""
        limits = int(tuning.CHAIN_SHARE * moves) + 1, tuning.LONGEST_CHAIN, tuning.SAMPLES
        anneal_chains(self._around, temperature, *limits, self.state)

    @property
    def _around(self) -> Around:
        """What every kernel of moves is given first."""
        instance = self.instance
        return instance.graph, instance.usage, self.profile, self.field, self.choices, instance.free

    def relieve_peak(self) -> bool:
        """Let a node give way at the fullest time; False where none can. `profile` is kept up."""
        node, strategy, _ = give_way(self._around, -1, tuning.REPAIR_SAMPLES, self.state)
        if node >= 0:
            put(self._around, node, strategy)
        return node >= 0


def graph_of(problem: ShardingProblem, ceiling: float) -> Graph:
    """The arrays that `field_kernels` reads, with every cost above `ceiling` replaced by it.

    Equal tables are one: files repeat few of them many times, and the moves are as fast as their tables are near.
    """
    placed: dict[tuple[tuple[int, ...], bytes], int] = {}
    parts: list[Floats] = []
    length = 0

    def place(table: Floats) -> int:
        nonlocal length
        key = (table.shape, table.tobytes())
        if key not in placed:
            placed[key] = length
            parts.append(table.ravel())
            length += table.size
        return placed[key]

    at: list[list[tuple[int, int, int]]] = [[] for _ in problem.node_costs]
    known: dict[int, tuple[int, int]] = {}
    for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        if id(matrix) not in known:
            table = np.minimum(matrix, ceiling)
            known[id(matrix)] = (place(table), place(np.ascontiguousarray(table.T)))
        by_a, by_b = known[id(matrix)]
        at[a].append((b, by_b, by_a))
        at[b].append((a, by_a, by_b))
    edges = np.array([edge for edges in at for edge in edges], dtype=np.int64).reshape(-1, 3)
    return (
        np.array([0, *accumulate(len(costs) for costs in problem.node_costs)], dtype=np.int64),
        np.minimum(np.concatenate([*problem.node_costs, np.zeros(0)]), ceiling),
        np.array([0, *accumulate(map(len, at))], dtype=np.int64),
        np.ascontiguousarray(edges[:, 0]),
        np.ascontiguousarray(edges[:, 1]),
        np.ascontiguousarray(edges[:, 2]),
        np.concatenate([*parts, np.zeros(0)]),
    )


def usage_of(times: Timeline) -> Usage:
    """The arrays of a timeline that the kernels read, with the segments that are alive in each block of times."""
    blocks = max(1, -(-len(times.room) // (1 << BLOCK_BITS)))
    first_block = times.begin >> BLOCK_BITS
    spans = ((times.end - 1) >> BLOCK_BITS) - first_block + 1
    at_block = entries_of_runs(first_block, spans)
    alive = np.concatenate([[0], np.cumsum(np.bincount(at_block, minlength=blocks))]).astype(np.int64)
    alive_segment = np.repeat(np.arange(len(times.begin)), spans)[np.argsort(at_block, kind="stable")]
    return (times.of_node, times.begin, times.end, times.first, times.amounts, alive, alive_segment, times.owner)
