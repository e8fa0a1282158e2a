"""The exact frontier of seconds and bytes has the points that brute force finds, no more and no fewer."""

import itertools

import numpy as np
import pytest

from alpa_explore.intra_op.bounds.messages import is_legal
from alpa_explore.intra_op.memory import pareto
from alpa_explore.intra_op.memory.pareto import Caps, pareto_frontier
from alpa_explore.intra_op.memory.pareto_bounds import PriceRun, pareto_bounds, sum_tables
from alpa_explore.intra_op.memory.pareto_kernels import minimal_sums
from tests.intra_op.problems import drawn, whole_numbers
from tests.intra_op.stages import chain, on_mesh, whole


def random_case(rng):
    nodes = int(rng.integers(2, 8))
    sizes = rng.integers(1, 6, nodes)
    pairs = [
        p if rng.random() < 0.5 else p[::-1] for p in itertools.combinations(range(nodes), 2) if rng.random() < 0.4
    ]

    problem = drawn(sizes, pairs, whole_numbers(rng, 30, 0.05))
    node_bytes = [
        rng.integers(0, 30, s).astype(float) if rng.random() < 0.85 else np.full(s, float(rng.integers(0, 30)))
        for s in sizes
    ]
    return problem, node_bytes


def bytes_of(node_bytes, choices):
    return sum(b[c] for b, c in zip(node_bytes, choices, strict=True))


def brute_force(problem, node_bytes):
    all_choices = itertools.product(*(range(len(c)) for c in problem.node_costs))
    pairs = sorted({(problem.evaluate(c), bytes_of(node_bytes, c)) for c in all_choices if is_legal(problem, c)})
    kept, least = [], np.inf
    for seconds, size in pairs:
        if size < least:
            kept.append((seconds, size))
            least = size
    return kept


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [21, 25, 26])
def test_the_frontier_is_that_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    long = empty = 0
    for _ in range(100):
        problem, node_bytes = random_case(rng)
        expected = brute_force(problem, node_bytes)
        frontier = pareto_frontier(problem, node_bytes)
        assert frontier is not None
        assert [(p.seconds, p.bytes) for p in frontier] == expected
        for p in frontier:
            assert is_legal(problem, p.choices)
            assert (problem.evaluate(p.choices), bytes_of(node_bytes, p.choices)) == (p.seconds, p.bytes)
        long += len(expected) > 5
        empty += not expected
    assert len(minimal_sums.dispatcher.signatures) == 1, "each other type takes seconds to compile"
    assert long > 10, "frontiers of one or two points prove little"
    assert empty > 0


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [22, 27, 28])
def test_a_limit_on_seconds_cuts_the_frontier_there_and_nowhere_else(seed):
    rng = np.random.default_rng(seed)
    for _ in range(33):
        problem, node_bytes = random_case(rng)
        expected = brute_force(problem, node_bytes)
        for seconds, _ in expected[:: max(1, len(expected) // 3)]:
            frontier = pareto_frontier(problem, node_bytes, most_seconds=seconds)
            assert [(p.seconds, p.bytes) for p in frontier] == [p for p in expected if p[0] <= seconds]


@pytest.mark.parametrize("caps", [Caps(joined_entries=3), Caps(points=3), Caps(sums=3)])
def test_a_frontier_beyond_a_cap_is_given_up_and_never_truncated(caps):
    rng = np.random.default_rng(23)
    given_up = 0
    for _ in range(60):
        problem, node_bytes = random_case(rng)
        frontier = pareto_frontier(problem, node_bytes, caps=caps)
        given_up += frontier is None
        assert frontier is None or [(p.seconds, p.bytes) for p in frontier] == brute_force(problem, node_bytes)
    assert given_up > 20


def test_the_frontier_of_a_stage_holds_the_best_choice_for_every_price_of_memory():
    from alpa_explore.intra_op.solve import solve

    problem, _ = on_mesh(whole(chain(1)), (4,), 1 / 16)
    unpriced = problem.at(inverse_b=1 / 16, memory_price=0.0, microbatches_held=2)
    node_bytes = [n.weight_bytes + 2 * n.activation_bytes for n in problem.nodes]
    frontier = pareto_frontier(unpriced, node_bytes)
    assert len(frontier) > 20
    assert all(a.seconds < b.seconds and a.bytes > b.bytes for a, b in itertools.pairwise(frontier))
    for price in np.geomspace(1e-14, 1e-6, 30):
        best = solve(problem.at(inverse_b=1 / 16, memory_price=price, microbatches_held=2)).objective
        assert min(p.seconds + price * p.bytes for p in frontier) == pytest.approx(best, rel=1e-9)
    hull = {min(frontier, key=lambda p, x=x: p.seconds + x * p.bytes).choices for x in np.geomspace(1e-14, 1e-6, 300)}
    assert len(hull) < len(frontier) / 2, "most of the frontier lies above its convex part: prices never find it"


def test_the_bounds_leave_the_frontier_as_it_is_and_the_sets_smaller(monkeypatch):
    problem, _ = on_mesh(whole(chain(1)), (4,), 1 / 16)
    unpriced = problem.at(inverse_b=1 / 16, memory_price=0.0, microbatches_held=2)
    node_bytes = [n.weight_bytes + 2 * n.activation_bytes for n in problem.nodes]
    kept = []
    sums = pareto.minimal_sums

    def counted(*arguments):
        result = sums(*arguments)
        kept[-1] += len(result[1])
        return result

    monkeypatch.setattr(pareto, "minimal_sums", counted)
    kept.append(0)
    bounded = pareto_frontier(unpriced, node_bytes)
    monkeypatch.setattr(pareto, "pareto_bounds", lambda *_: None)
    kept.append(0)
    unbounded = pareto_frontier(unpriced, node_bytes)
    assert [p.bytes for p in unbounded] == [p.bytes for p in bounded]
    assert [p.seconds for p in unbounded] == pytest.approx([p.seconds for p in bounded], rel=1e-12)
    assert kept[0] < kept[1] / 2


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [24, 29])
def test_every_context_is_the_least_cost_outside_its_table(seed):
    rng = np.random.default_rng(seed)
    checked = 0
    for _ in range(30):
        problem, node_bytes = random_case(rng)
        order = [int(v) for v in rng.permutation(len(problem.node_costs))]
        bounds = pareto_bounds(problem, node_bytes, order)
        all_choices = itertools.product(*(range(len(c)) for c in problem.node_costs))
        legal = [c for c in all_choices if is_legal(problem, c)]
        assert (bounds is None) == (not legal)
        for price, (second, byte) in enumerate(bounds.prices if bounds else ()):
            # The last step's table holds all of its part: with its context it is the least of the whole problem.
            least = min(second * problem.evaluate(c) + byte * bytes_of(node_bytes, c) for c in legal)
            run = PriceRun(problem, node_bytes, order, float(second), float(byte))
            for number, step in enumerate(run.steps):
                assert step.node == order[number]
                table = sum_tables(step.tables, step.axes).min(axis=0)
                whole = table + bounds.contexts[number][price].reshape(table.shape)
                assert whole.min() == pytest.approx(least, rel=1e-9, abs=1e-9)
                for at in itertools.islice(np.ndindex(*table.shape), 4):
                    fixed = [c for c in legal if all(c[u] == k for u, k in zip(step.scope, at, strict=True))]
                    values = [second * problem.evaluate(c) + byte * bytes_of(node_bytes, c) for c in fixed]
                    assert whole[at] == pytest.approx(min(values, default=np.inf), rel=1e-9, abs=1e-9)
                    checked += bool(fixed)
    assert checked > 500
