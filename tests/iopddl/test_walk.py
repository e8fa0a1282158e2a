"""What the kernels keep up beside a choice is what a look at the whole problem gives."""

import math

import numpy as np
import pytest

from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.iopddl.walk import SearchProblem, Walk, graph_of
from tests.iopddl.test_anytime import random_case


def field_by_definition(problem, items, prices_of_time, choices):
    """For every node and strategy its cost, the price of its memory and its edges, from the problem alone."""
    entries = []
    for v, costs in enumerate(problem.node_costs):
        total = costs.copy()
        for item in items:
            if item.node == v:
                total += (item.usage - item.usage.min()) * prices_of_time[item.start : item.end].sum()
        for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
            if a == v:
                total += matrix[:, choices[b]]
            if b == v:
                total += matrix[choices[a]]
        entries.append(total)
    return np.concatenate(entries)


def test_field_cost_and_profile_are_kept_up_under_all_moves():
    rng = np.random.default_rng(4)
    moved = 0
    for case in range(20):
        problem, items = random_case(rng, 8, 4, forbidden=0.0)
        problem = type(problem)(
            name="legal",
            node_costs=problem.node_costs,
            edges=problem.edges,
            edge_costs=tuple(np.minimum(m, 50.0) for m in problem.edge_costs),
        )
        memory = MemoryLimit.of(items, 1.2 * MemoryLimit.of(items, 1.0).least_peak() + 3e6)
        least = np.zeros(8, dtype=np.int64)
        for v in range(8):
            held = [item.usage for item in items if item.node == v and item.end > item.start]
            least[v] = np.argmin(sum(held)) if held else 0
        walk = Walk(SearchProblem.of(problem, memory), least.copy(), seed=case)
        times = len(walk.instance.times.room)
        walk.price(np.zeros(times))
        before = walk.weigh()
        for kind in (walk.trees, walk.chains, walk.singles):
            kind(200, 5.0)
            free = np.zeros(9)
            assert walk.field == pytest.approx(field_by_definition(problem, items, free, walk.choices), abs=1e-6)
            cost, legal = walk.cost()
            assert legal
            assert cost == pytest.approx(problem.evaluate(tuple(walk.choices.tolist())))
            if before <= 0:
                kept_up = walk.above()
                assert kept_up <= 0
                assert kept_up == pytest.approx(walk.weigh())
                assert memory.allows(walk.choices.tolist())
        moved += bool((walk.choices != least).any())
    assert moved > 10


def test_prices_of_memory_are_part_of_the_field():
    rng = np.random.default_rng(6)
    for case in range(10):
        problem, items = random_case(rng, 6, 4, forbidden=0.0)
        memory = MemoryLimit.of(items, MemoryLimit.of(items, 1.0).least_peak() + 1e6)
        walk = Walk(SearchProblem.of(problem, memory), np.zeros(6, dtype=np.int64), seed=case)
        equal = np.ones(len(walk.instance.times.room))
        walk.price(equal)
        priced = walk.field.copy()
        walk.price(0 * equal)
        charged = walk.instance.times.memory_costs(equal, len(walk.field))
        assert priced - walk.field == pytest.approx(charged)
        # A strategy is charged for what it holds above the leanest, at each of the times that count.
        assert (charged >= 0).all()
        assert walk.instance.times.memory_costs(3 * equal, len(walk.field)) == pytest.approx(3 * charged)


def test_equal_tables_are_kept_once_and_each_way():
    rng = np.random.default_rng(7)
    problem, _ = random_case(rng, 9, 3, density=0.8)
    graph = graph_of(problem, math.inf)
    _, _, incident, other, to_own, to_other, rows = graph
    for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        q = next(q for q in range(incident[a], incident[a + 1]) if other[q] == b)
        height, width = matrix.shape
        assert (rows[to_other[q] :][: matrix.size].reshape(height, width) == matrix).all()
        assert (rows[to_own[q] :][: matrix.size].reshape(width, height) == matrix.T).all()
    distinct = {(m.shape, m.tobytes()) for t in problem.edge_costs for m in (t, np.ascontiguousarray(t.T))}
    assert len(rows) == sum(h * w for (h, w), _ in distinct)
