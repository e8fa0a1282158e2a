"""The exact frontier of seconds and bytes has the points that brute force finds, no more and no fewer."""

import itertools

import numpy as np
import pytest

from alpa_explore.intra_op.bounds.messages import is_legal
from alpa_explore.questions.pareto import pareto_frontier
from tests.intra_op.problems import drawn, legal_choices, whole_numbers
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


def figures(problem, node_bytes, frontier):
    return [(problem.evaluate(choices), bytes_of(node_bytes, choices)) for choices in frontier]


def brute_force(problem, node_bytes):
    pairs = sorted({(problem.evaluate(c), bytes_of(node_bytes, c)) for c in legal_choices(problem)})
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
        assert figures(problem, node_bytes, frontier) == expected
        assert all(is_legal(problem, choices) for choices in frontier)
        long += len(expected) > 5
        empty += not expected
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
            assert figures(problem, node_bytes, frontier) == [p for p in expected if p[0] <= seconds]


@pytest.mark.parametrize("most", [15, 30])
def test_a_frontier_of_too_many_sums_is_given_up_and_never_truncated(most):
    rng = np.random.default_rng(23)
    given_up = 0
    for _ in range(60):
        problem, node_bytes = random_case(rng)
        frontier = pareto_frontier(problem, node_bytes, most_sums=most)
        given_up += frontier is None
        assert frontier is None or figures(problem, node_bytes, frontier) == brute_force(problem, node_bytes)
    assert 20 < given_up < 60


def test_the_frontier_of_a_stage_holds_the_best_choice_for_every_price_of_memory():
    from alpa_explore.intra_op.solve import solve

    problem, _ = on_mesh(whole(chain(1)), (4,), 1 / 16)
    unpriced = problem.at(inverse_b=1 / 16, memory_price=0.0, microbatches_held=2)
    node_bytes = [n.weight_bytes + 2 * n.activation_bytes for n in problem.nodes]
    frontier = figures(unpriced, node_bytes, pareto_frontier(unpriced, node_bytes))
    assert len(frontier) > 20
    assert all(a[0] < b[0] and a[1] > b[1] for a, b in itertools.pairwise(frontier))
    for price in np.geomspace(1e-14, 1e-6, 30):
        best = solve(problem.at(inverse_b=1 / 16, memory_price=price, microbatches_held=2)).objective
        assert min(seconds + price * size for seconds, size in frontier) == pytest.approx(best, rel=1e-9)
    hull = {min(frontier, key=lambda p, x=x: p[0] + x * p[1]) for x in np.geomspace(1e-14, 1e-6, 300)}
    assert len(hull) < len(frontier) / 2, "most of the frontier lies above its convex part: prices never find it"
