"""Training graphs of any size that are short of memory, like those of the IOPDDL contest, with a choice that is known
to fit: chains with skips, from the forward half to the backward half, followers, hubs, parallel edges, nodes that hold
nothing, few distinct tables, and a limit near the least usage.

`python -m tests.iopddl.training_graphs NODES SEED FILE` writes one as a file for `alpa-explore solve`.
"""

import json
import sys
from typing import NamedTuple

import numpy as np

from alpa_explore.intra_op.problem.memory_limit import Item, MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem

STRATEGIES = (1, 4, 9, 24, 100)
SHARE_OF_NODES = (0.35, 0.3, 0.25, 0.08, 0.02)
AXES = 5
MIB = 2**20


class TrainingGraph(NamedTuple):
    """A problem, its limit, and a choice within it."""

    problem: ShardingProblem
    memory: MemoryLimit
    planted: tuple[int, ...]

    def document(self):
        """The contents of a file in the format of the contest."""
        problem, memory = self.problem, self.memory
        whole = {id(t): [int(x) for x in t.ravel()] for t in (*problem.node_costs, *problem.edge_costs)}
        return {
            "problem": {
                "name": problem.name,
                "nodes": {
                    "intervals": [[i.start, i.end] for i in memory.items],
                    "costs": [whole[id(c)] for c in problem.node_costs],
                    "usages": [[int(x) for x in i.usage] for i in memory.items],
                },
                "edges": {"nodes": list(problem.edges), "costs": [whole[id(t)] for t in problem.edge_costs]},
                "usage_limit": int(memory.limit),
            }
        }


def training_graph(nodes, seed, margin=1.1, hubs=10):
    """A graph of `nodes` nodes; the limit is `margin` times the usage of a choice that shards all as far as it can."""
    rng = np.random.default_rng(seed)
    # A strategy is the axis that is sharded and how often; the last one of every kind is the planted one.
    layouts = {
        k: np.array([(rng.integers(AXES), 1 << rng.integers(4)) for _ in range(k - 1)] + [(0, 8)]) for k in STRATEGIES
    }
    sizes = 4.0 ** np.arange(5)
    kinds = rng.choice(STRATEGIES, size=nodes, p=SHARE_OF_NODES)
    classes = rng.integers(len(sizes), size=nodes)
    own = {
        (k, s): np.floor(1000 * sizes[s] * rng.random(k)) + 100 * sizes[s] * (8 - layouts[k][:, 1])
        for k in STRATEGIES
        for s in range(len(sizes))
    }
    tables = {}

    def table(a, b, size, *, follows):
        if (a, b, size, follows) not in tables:
            same = (layouts[a][:, None] == layouts[b][None]).all(axis=2)
            resharding = np.where(same, 0.0, np.floor(1e5 * sizes[size] * rng.uniform(0.5, 1, same.shape)))
            tables[a, b, size, follows] = np.where(np.eye(a, b) > 0, 0.0, FORBIDDEN) if follows else resharding
        return tables[a, b, size, follows]

    edges = [(v - 1, v) for v in range(1, nodes) if rng.random() < 0.8]
    edges += [(max(0, v - int(rng.integers(2, 100))), v) for v in range(2, nodes) if rng.random() < 0.3]
    edges += [(v, nodes - 1 - v) for v in range(nodes // 2 - 1) if rng.random() < 0.2]
    edges += [(h, int(v)) for h in range(hubs) for v in rng.integers(hubs, nodes, size=min(300, nodes // 4))]
    edges += [edges[i] for i in rng.integers(len(edges), size=nodes // 50)]
    matrices = [
        table(kinds[a], kinds[b], int(classes[a]), follows=bool(kinds[a] == kinds[b] and rng.random() < 0.5))
        for a, b in edges
    ]
    items = []
    for v in range(nodes):
        start, draw = v, rng.random()
        kept = v < nodes // 2 and draw < 0.3
        end = start if draw > 0.9 else nodes - v if kept else min(nodes, v + 1 + int(rng.integers(20)))
        if draw > 0.85 and draw < 0.9:
            start, end = 0, nodes  # a weight
        items.append(Item(node=v, start=start, end=end, usage=MIB * sizes[classes[v]] / layouts[kinds[v]][:, 1]))
    planted = tuple(int(k) - 1 for k in kinds)
    memory = MemoryLimit.of(items, 0.0)
    return TrainingGraph(
        problem=ShardingProblem(
            name=f"training graph {nodes} {seed}",
            node_costs=tuple(own[int(k), int(s)] for k, s in zip(kinds, classes, strict=True)),
            edges=tuple(edges),
            edge_costs=tuple(matrices),
        ),
        memory=MemoryLimit.of(items, np.floor(margin * memory.peak(planted))),
        planted=planted,
    )


if __name__ == "__main__":
    with open(sys.argv[3], "w") as file:
        json.dump(training_graph(int(sys.argv[1]), int(sys.argv[2])).document(), file)
