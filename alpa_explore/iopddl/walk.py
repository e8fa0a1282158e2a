"""`Walk`: a choice on its way through the search, with all that the kernels keep up beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from alpa_explore.intra_op.ilp.memory_rows import fullest_times
from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.iopddl import tuning
from alpa_explore.iopddl.anneal_kernels import anneal, anneal_chains
from alpa_explore.iopddl.field_kernels import Graph, cost_of, fill, give_way, put
from alpa_explore.iopddl.profile_kernels import BLOCK_BITS, Profile, Usage, fullest, profile_of
from alpa_explore.iopddl.tree_kernels import anneal_trees
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
        limits = temperature, tolerance, int(tuning.SINGLES * moves)
        anneal(*self._around, *limits, self.state, self.halt)

    def trees(self, moves: int, temperature: float, tolerance: float) -> None:
        """Moves of about `moves` nodes in trees."""
        limits = temperature, tolerance, moves, tuning.LARGEST_TREE, tuning.LONGEST_TREE_REPAIR, tuning.SAMPLES
        anneal_trees(*self._around, *limits, self.instance.noise, self.state, self.halt)

    def chains(self, moves: int, temperature: float, tolerance: float) -> None:
        """Chains, beside `moves` moves of nodes in trees."""
        chains = int(tuning.CHAIN_SHARE * moves) + 1
        limits = temperature, tolerance, chains, tuning.LONGEST_CHAIN, tuning.SAMPLES
        anneal_chains(*self._around, *limits, self.state, self.halt)

    @property
    def _around(self) -> tuple[Graph, Usage, Profile, Floats, Ints, Ints]:
        """What every kernel of moves is given first."""
        instance = self.instance
        return instance.graph, instance.segments.usage, self.profile, self.field, self.choices, instance.free

    def relieve_peak(self) -> bool:
        """Let a node give way at the fullest time; False where none can. `profile` is kept up."""
        instance = self.instance
        usage, around = instance.segments.usage, (self.profile, self.field, self.choices)
        node, strategy, _ = give_way(instance.graph, usage, *around, -1, tuning.REPAIR_SAMPLES, self.state)
        if node >= 0:
            put(instance.graph, usage, *around, node, strategy, True)
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segments:
    """Usage above what no choice avoids, node after node."""

    usage: Usage
    """The arrays that the kernels read (see `anneal_kernels`)."""
    room: Floats
    """Bytes left at each time for what `usage` counts; negative where no choice fits."""

    def profile(self, choices: Sequence[int] | Ints) -> Profile:
        """The bytes above the limit under `choices`, as the kernels update them."""
        _, begin, end, first, amounts = self.usage[:5]
        owner = self.usage[7]
        taken = amounts[first + np.asarray(choices, dtype=np.int64)[owner]]
        change = np.zeros(len(self.room) + 1)
        np.add.at(change, begin, taken)
        np.add.at(change, end, -taken)
        above = change.cumsum()[:-1] - self.room
        blocks = -(-len(above) // (1 << BLOCK_BITS))
        padded = np.full(blocks << BLOCK_BITS, -np.inf)
        padded[: len(above)] = above
        return above, np.zeros(blocks), padded.reshape(blocks, -1).max(axis=1)


def segments(memory: MemoryLimit, sizes: Sequence[int]) -> Segments:
    """The segments of the nodes with `sizes` strategies each."""
    items = [item for item in memory.items if item.end > item.start]
    usages = np.concatenate([*(item.usage for item in items), np.zeros(0)])
    firsts = np.concatenate([[0], np.cumsum([len(item.usage) for item in items])]).astype(np.int64)[:-1]
    least = np.minimum.reduceat(usages, firsts) if items else np.zeros(0)
    span = np.maximum.reduceat(usages, firsts) - least if items else np.zeros(0)
    alive = MemoryLimit(items=tuple(items), limit=memory.limit, fixed_bytes=memory.fixed_bytes)
    room = memory.limit - alive.profile(least.tolist())
    most = alive.profile(span.tolist()) - memory.fixed_bytes
    times = np.array(fullest_times(alive, {item.start for item in items}), dtype=np.int64)
    times = times[most[times] > room[times]]
    if not times.size:
        # The limit never binds, or nothing that varies can help: the time with least room stands for all.
        times = np.array([int(np.argmin(room - most))] if room.size else [], dtype=np.int64)
    place = np.searchsorted(times, np.arange(len(memory.fixed_bytes) + 1))
    by_node: list[list[int]] = [[] for _ in sizes]
    for i, item in enumerate(items):
        if span[i] > 0 and place[item.end] > place[item.start]:
            by_node[item.node].append(i)
    starts, begin, end, rows, owner = [0], [], [], [], []
    for v, at in enumerate(by_node):
        if at:
            ends = np.array([[place[items[i].start], place[items[i].end]] for i in at])
            cuts, position = np.unique(ends, return_inverse=True)
            change = np.zeros((len(cuts), sizes[v]))
            for i, (low, high) in zip(at, position.reshape(-1, 2).tolist(), strict=True):
                above = items[i].usage - least[i]
                change[low] += above
                change[high] -= above
            level = change.cumsum(axis=0)
            used = np.flatnonzero((level[:-1] != 0).any(axis=1))
            begin += cuts[used].tolist()
            end += cuts[used + 1].tolist()
            rows += list(level[used])
            owner += [v] * len(used)
        starts.append(len(begin))
    first = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)[:-1]
    begins, ends_of = np.array(begin, dtype=np.int64), np.array(end, dtype=np.int64)
    blocks = max(1, -(-len(times) // (1 << BLOCK_BITS)))
    first_block = begins >> BLOCK_BITS
    spans = ((ends_of - 1) >> BLOCK_BITS) - first_block + 1
    at_block = np.repeat(first_block, spans) + np.arange(spans.sum()) - np.repeat(np.cumsum(spans) - spans, spans)
    order = np.argsort(at_block, kind="stable")
    return Segments(
        usage=(
            np.array(starts, dtype=np.int64),
            begins,
            ends_of,
            first,
            np.concatenate([*rows, np.zeros(0)]),
            np.concatenate([[0], np.cumsum(np.bincount(at_block, minlength=blocks))]).astype(np.int64),
            np.repeat(np.arange(len(begins)), spans)[order],
            np.array(owner, dtype=np.int64),
        ),
        room=np.asarray(room[times]) if times.size else np.ones(1),
    )
