"""`Walk`: a choice on its way through the search, with all that the kernels keep up beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alpa_explore.intra_op.anytime import tuning
from alpa_explore.intra_op.anytime.anneal_kernels import anneal, anneal_chains
from alpa_explore.intra_op.anytime.field_kernels import Graph, cost_of, fill, give_way, put
from alpa_explore.intra_op.anytime.graph import graph_of
from alpa_explore.intra_op.anytime.profile_kernels import Profile, fullest, profile_of
from alpa_explore.intra_op.anytime.segments import Segments, segments
from alpa_explore.intra_op.anytime.tree_kernels import anneal_trees
from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.numerics.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchProblem:
    """What does not change during a search."""

    graph: Graph
    segments: Segments
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
        return SearchProblem(
            graph=graph_of(problem, ceiling),
            segments=segments(memory, sizes.tolist()),
            free=np.flatnonzero(sizes > 1),
            ceiling=ceiling,
            noise=-np.log(-np.log(places)),
        )

    def memory_costs(self, prices: Floats) -> Floats:
        """The price of the memory of every strategy."""
        nodes = self.graph[0]
        alone = (nodes, np.zeros(nodes[-1]), np.zeros(len(nodes), dtype=np.int64), *self.graph[3:])
        costs = np.empty(nodes[-1])
        fill(alone, self.segments.usage, _until(prices), np.zeros(len(nodes) - 1, dtype=np.int64), costs)
        return costs


def _until(prices: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(prices)])


def _largest_legal(problem: ShardingProblem) -> float:
    tables = {id(table): table for table in (*problem.node_costs, *problem.edge_costs)}
    return max((float(t[t < FORBIDDEN].max(initial=0.0)) for t in tables.values()), default=0.0)


class Walk:
    """Mutable. `field` and `profile` are those of `choices` after `price` and `weigh`, and while the moves are
    limited; without the limit only `field` is kept up."""

    def __init__(self, instance: SearchProblem, choices: Ints, seed: int) -> None:
        self.instance = instance
        self.choices: Ints = choices
        nodes, room = instance.graph[0], instance.segments.room
        self.field: Floats = np.empty(nodes[-1])
        self.profile: Profile = instance.segments.profile(choices)
        self.halt = np.zeros(1, dtype=np.int64)
        self.rooms = room
        self.state = np.array([0x9E3779B97F4A7C15 * (2 * seed + 1) % 2**64, 0], dtype=np.uint64)

    def price(self, prices: Floats) -> None:
        """The field at these prices of a byte at each time."""
        fill(self.instance.graph, self.instance.segments.usage, _until(prices), self.choices, self.field)

    def weigh(self) -> float:
        """The profile of `choices`, summed up anew; returns by how much it exceeds the limit."""
        profile_of(self.instance.segments.usage, self.rooms, self.choices, self.profile)
        return self.above()

    def above(self) -> float:
        """By how much the profile that is kept up exceeds the limit."""
        return float(fullest(self.profile)[1])

    def cost(self) -> tuple[float, bool]:
        """The cost of `choices`, forbidden entries at the ceiling, and whether there is none."""
        cost, legal = cost_of(self.instance.graph, self.choices, self.instance.ceiling)
        return float(cost), bool(legal)

    def beside(self, seed: int) -> Walk:
        """Another walk on the same choice and the same field, which draws other random numbers."""
        twin = Walk.__new__(Walk)
        twin.instance, twin.choices, twin.field, twin.profile = self.instance, self.choices, self.field, self.profile
        twin.rooms, twin.halt = self.rooms, self.halt
        twin.state = Walk(self.instance, self.choices, seed).state
        twin.state[1] = len(self.instance.free) // 2
        return twin

    def move(self, moves: int, temperature: float, tolerance: float, *, singles_first: bool = False) -> None:
        """About `moves` moves of nodes in trees, and of chains and single nodes the shares that `tuning` says; none
        exceeds the limit by more than `tolerance`."""
        if singles_first:
            self.singles(moves, temperature, tolerance)
        self.trees(moves, temperature, tolerance)
        self.chains(moves, temperature, tolerance)
        if not singles_first:
            self.singles(moves, temperature, tolerance)

    def singles(self, moves: int, temperature: float, tolerance: float) -> None:
        """Moves of single nodes, beside `moves` of nodes in trees."""
        instance = self.instance
        anneal(
            instance.graph,
            instance.segments.usage,
            self.profile,
            self.field,
            self.choices,
            instance.free,
            temperature,
            tolerance,
            int(tuning.SINGLES * moves),
            self.state,
            self.halt,
        )

    def trees(self, moves: int, temperature: float, tolerance: float) -> None:
        """Moves of about `moves` nodes in trees."""
        instance = self.instance
        anneal_trees(
            instance.graph,
            instance.segments.usage,
            self.profile,
            self.field,
            self.choices,
            instance.free,
            temperature,
            tolerance,
            moves,
            tuning.LARGEST_TREE,
            tuning.LONGEST_TREE_REPAIR,
            tuning.SAMPLES,
            instance.noise,
            self.state,
            self.halt,
        )

    def chains(self, moves: int, temperature: float, tolerance: float) -> None:
        """Chains, beside `moves` moves of nodes in trees."""
        instance = self.instance
        anneal_chains(
            instance.graph,
            instance.segments.usage,
            self.profile,
            self.field,
            self.choices,
            instance.free,
            temperature,
            tolerance,
            int(tuning.CHAIN_SHARE * moves) + 1,
            tuning.LONGEST_CHAIN,
            tuning.SAMPLES,
            self.state,
            self.halt,
        )

    def relieve_peak(self) -> bool:
        """Let a node give way at the fullest time; False where none can. `profile` is kept up."""
        instance = self.instance
        usage, around = instance.segments.usage, (self.profile, self.field, self.choices)
        node, strategy, _ = give_way(instance.graph, usage, *around, -1, tuning.REPAIR_SAMPLES, self.state)
        if node >= 0:
            put(instance.graph, usage, *around, node, strategy, True)
        return node >= 0
