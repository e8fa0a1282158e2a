"""Message passing with one numpy call per edge: the reference for the compiled kernels."""

import numpy as np


class ReferenceMessages:
    """The state of message passing; every cost above `ceiling` is replaced by it."""

    def __init__(self, problem, ceiling) -> None:
        self.costs = [np.minimum(c, ceiling) for c in problem.node_costs]
        self.edges = problem.edges
        self.matrices = [np.minimum(m, ceiling) for m in problem.edge_costs]
        # Messages into a and into b of each edge.
        self.into_a: list = [np.zeros(m.shape[0]) for m in self.matrices]
        self.into_b: list = [np.zeros(m.shape[1]) for m in self.matrices]
        self.around: list[list[int]] = [[] for _ in self.costs]
        for e, (a, b) in enumerate(self.edges):
            self.around[a].append(e)
            self.around[b].append(e)
        self.later = [[e for e in edges if max(self.edges[e]) != v] for v, edges in enumerate(self.around)]
        self.earlier = [[e for e in edges if min(self.edges[e]) != v] for v, edges in enumerate(self.around)]

    def total(self, v: int) -> np.ndarray:
        """ĉ_v."""
        total = self.costs[v].copy()
        for e in self.around[v]:
            total += self.into_a[e] if self.edges[e][0] == v else self.into_b[e]
        return total

    def sweep(self, *, forward: bool) -> tuple[int, ...]:
        """Each node collects the minima of its edges and passes them on to the edges ahead; returns a choice.

        Each node takes its best strategy given those of the nodes before it and the messages of the edges ahead.
        """
        choices = [0] * len(self.costs)
        order = range(len(self.costs)) if forward else range(len(self.costs) - 1, -1, -1)
        for v in order:
            collected = self.costs[v].copy()
            given = self.costs[v].copy()
            for e in self.around[v]:
                a, b = self.edges[e]
                first = a == v
                message = self.into_a[e] if first else self.into_b[e]
                message += self._left(e).min(axis=1 if first else 0)
                collected += message
                other = b if first else a
                if (other < v) == forward:
                    given += self.matrices[e][:, choices[other]] if first else self.matrices[e][choices[other]]
                else:
                    given += message
            choices[v] = int(given.argmin())
            ahead = self.later[v] if forward else self.earlier[v]
            share = collected / max(len(self.later[v]), len(self.earlier[v]), 1)
            for e in ahead:
                message = self.into_a[e] if self.edges[e][0] == v else self.into_b[e]
                message -= share
        return tuple(choices)

    def bound(self) -> float:
        """Lower bound on the least cost."""
        nodes = sum(float(self.total(v).min()) for v in range(len(self.costs)))
        return nodes + sum(float(self._left(e).min()) for e in range(len(self.edges)))

    def slacks(self) -> tuple[float, list]:
        """The bound, and for every node by how much each strategy raises it at the least."""
        slacks = []
        bound = 0.0
        for v in range(len(self.costs)):
            total = self.total(v)
            bound += float(total.min())
            slacks.append(total - total.min())
        for e, (a, b) in enumerate(self.edges):
            left = self._left(e)
            least = float(left.min())
            bound += least
            slacks[a] += left.min(axis=1) - least
            slacks[b] += left.min(axis=0) - least
        return bound, slacks

    def _left(self, e: int) -> np.ndarray:
        """Ê of edge e."""
        return np.asarray(self.matrices[e] - self.into_a[e][:, None] - self.into_b[e][None, :])
