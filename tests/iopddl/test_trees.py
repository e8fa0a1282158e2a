"""Moves of trees: what grows is a tree of the graph; without noise a move gives the optimum of the tree, within the
limit."""

import math

import numpy as np
import pytest

from alpa_explore.intra_op.problem.memory_limit import Item, MemoryLimit
from alpa_explore.iopddl.tree_kernels import grow
from alpa_explore.iopddl.walk import SearchProblem, Walk, graph_of
from tests.intra_op.problems import drawn
from tests.iopddl.test_anytime import legal_choices, random_case


def state(seed):
    return np.array([seed * 2654435761 + 12345], dtype=np.uint64)


def test_what_grows_is_a_tree_that_the_graph_has_no_other_edge_in():
    rng = np.random.default_rng(1)
    sizes = set()
    for seed in range(60):
        problem, _ = random_case(rng, 12, 3, density=0.25)
        movable = rng.random(12) < 0.8
        movable[0] = True
        tree, link, parent = (np.zeros(9, dtype=np.int64) for _ in range(3))
        touching, ends, ends_of = (np.zeros(n, dtype=np.int64) for n in (12, 72, 72))
        graph = graph_of(problem, math.inf)
        count = grow(graph, movable, 0, 9, tree, link, parent, touching, ends, ends_of, state(seed))
        nodes = tree[:count].tolist()
        assert len(set(nodes)) == count
        assert movable[nodes].all()
        inside = [{a, b} for a, b in problem.edges if a in nodes and b in nodes]
        assert len(inside) == count - 1
        assert all({nodes[k], nodes[parent[k]]} in inside for k in range(1, count))
        assert all(graph[3][link[k]] == nodes[k] for k in range(1, count))
        assert all(graph[2][nodes[parent[k]]] <= link[k] < graph[2][nodes[parent[k]] + 1] for k in range(1, count))
        assert not touching.any()
        sizes.add(count)
    assert max(sizes) > 4


def random_tree(rng, nodes):
    """A tree with costs between 0 and 1, no two choices equally dear."""
    sizes = rng.integers(1, 5, nodes)
    # Either end may be the first.
    edges = [(int(rng.integers(0, v)), v)[:: 1 if rng.random() < 0.5 else -1] for v in range(1, nodes)]
    return drawn(sizes, edges, lambda *shape: rng.random(shape), "tree")


def test_without_noise_a_tree_takes_its_best_choice_and_keeps_the_limit():
    rng = np.random.default_rng(2)
    moved = 0
    for case in range(40):
        problem = random_tree(rng, 7)
        sizes = [len(c) for c in problem.node_costs]
        items = [Item(node=v, start=v // 2, end=v // 2 + 2, usage=rng.integers(0, 9, sizes[v]) * 1.0) for v in range(7)]
        peaks = {c: MemoryLimit.of(items, 1.0).peak(c) for c in legal_choices(problem)}
        start = min(peaks, key=peaks.__getitem__)
        for limit in (sorted(peaks.values())[len(peaks) // 4], max(peaks.values())):
            memory = MemoryLimit.of(items, limit)
            walk = Walk(SearchProblem.of(problem, memory), np.array(start, dtype=np.int64), seed=case)
            walk.price(np.zeros(len(walk.instance.times.room)))
            walk.weigh()
            walk.trees(600, 1e-12)
            found = tuple(walk.choices.tolist())
            kept_up = walk.above()
            assert kept_up == pytest.approx(walk.weigh())
            assert memory.allows(found)
            assert problem.evaluate(found) <= problem.evaluate(start)
            moved += found != start
        assert found == min(peaks, key=problem.evaluate), "all choices are within the second limit"
    assert moved > 40
