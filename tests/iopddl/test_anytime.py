"""The anytime search: legal, within the limit, never below its bound, equal to brute force on small problems."""

import itertools
import time

import numpy as np
import pytest

from alpa_explore.errors import SolverError
from alpa_explore.intra_op.bounds.messages import is_legal
from alpa_explore.intra_op.memory.price_search import price_search
from alpa_explore.intra_op.problem.memory_limit import Item, MemoryLimit
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.reduction.factor_graph import Contradiction
from alpa_explore.iopddl.anneal import Found, anneal_within
from alpa_explore.iopddl.condense import condense
from alpa_explore.iopddl.profile_kernels import hold
from alpa_explore.iopddl.search import solve_within
from alpa_explore.iopddl.walk import SearchProblem, Walk
from tests.intra_op.problems import legal_choices, whole_numbers


def random_case(rng, nodes, strategies, forbidden=0.1, density=0.4):
    sizes = rng.integers(1, strategies + 1, nodes)
    pairs = [p for p in itertools.combinations(range(nodes), 2) if rng.random() < density]

    costs = whole_numbers(rng, 20, forbidden)
    matrices = []
    for a, b in pairs:
        if sizes[a] == sizes[b] and rng.random() < 0.4:  # a follower: only equal strategies
            matrices.append(np.where(np.eye(sizes[a]) > 0, 0.0, FORBIDDEN))
        else:
            matrices.append(costs(sizes[a], sizes[b]))
    problem = ShardingProblem(
        name="random", node_costs=tuple(costs(s) for s in sizes), edges=tuple(pairs), edge_costs=tuple(matrices)
    )
    items = []
    for v in range(nodes):
        for _ in range(int(rng.integers(0, 3))):
            start, end = sorted(rng.integers(0, 8, 2).tolist())
            items.append(Item(node=v, start=start, end=end, usage=rng.integers(0, 10, sizes[v]) * 1e6))
    return problem, items


def peak(items, choices):
    return max(sum(i.usage[choices[i.node]] for i in items if i.start <= t < i.end) for t in range(9))


def every_strategy(problem):
    return tuple(np.arange(len(c)) for c in problem.node_costs)


def test_condensing_keeps_the_optimum_under_every_limit():
    rng = np.random.default_rng(3)
    merged = dropped = 0
    for _ in range(150):
        problem, items = random_case(rng, int(rng.integers(2, 7)), 4)
        legal = legal_choices(problem)
        for limit in sorted({peak(items, c) for c in legal})[:4] or [1e7]:
            memory = MemoryLimit.of(items, limit)
            fitting = [problem.evaluate(c) for c in legal if peak(items, c) <= limit]
            try:
                condensed = condense(problem, memory, every_strategy(problem))
            except Contradiction:
                assert not legal
                continue
            smaller, within = condensed.problem, condensed.memory
            answers = [c for c in legal_choices(smaller) if within.allows(c)]
            assert bool(answers) == bool(fitting)
            if answers:
                best = min(answers, key=smaller.evaluate)
                restored = condensed.restore(best)
                assert is_legal(problem, restored)
                assert peak(items, restored) <= limit
                assert smaller.evaluate(best) == pytest.approx(min(fitting))
                assert problem.evaluate(restored) == pytest.approx(min(fitting))
            merged += len(condensed.followers)
            dropped += sum(map(len, problem.node_costs)) - sum(map(len, smaller.node_costs))
    assert merged > 100
    assert dropped > merged


def test_the_profile_of_the_kernels_is_what_the_limit_says():
    rng = np.random.default_rng(5)
    for _ in range(60):
        problem, items = random_case(rng, 5, 4, forbidden=0.0)
        sizes = [len(c) for c in problem.node_costs]
        least = MemoryLimit.of(items, 1.0).least_peak()
        memory = MemoryLimit.of(items, least + 3e6)
        choices = np.zeros(5, dtype=np.int64)
        walk = Walk(SearchProblem.of(problem, memory), choices, seed=1)
        walk.weigh()
        profile = walk.profile
        for v in [*range(5), *range(5)]:
            new = int(rng.integers(sizes[v]))
            hold(walk.instance.usage, profile, v, int(choices[v]), new)
            choices[v] = new
            assert (profile[2].max() <= 0) == (peak(items, choices) <= memory.limit)
            if profile[2].max() > 0:
                assert profile[2].max() == pytest.approx(peak(items, choices) - memory.limit)


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize(("seed", "cases"), [(8, 10), (9, 25)])
def test_annealing_finds_the_optimum_of_brute_force(seed, cases):
    rng = np.random.default_rng(seed)
    found = 0
    for case in range(cases):
        problem, items = random_case(rng, 6, 4, forbidden=0.05)
        legal = legal_choices(problem)
        if not legal:
            continue
        peaks = [peak(items, c) for c in legal]
        limit = float(np.quantile(peaks, 0.2))
        optimum = min(problem.evaluate(c) for c, most in zip(legal, peaks, strict=True) if most <= limit)
        result = Found(problem)
        instance = SearchProblem.of(problem, MemoryLimit.of(items, limit))
        anneal_within(instance, result, time.process_time() + 0.25, seed=case)
        assert result.choices is not None
        assert is_legal(problem, result.choices)
        assert peak(items, result.choices) <= limit
        assert problem.evaluate(result.choices) == pytest.approx(result.cost)
        assert result.cost >= optimum
        found += result.cost == pytest.approx(optimum)
    assert found >= 0.7 * cases


def test_a_choice_that_differs_in_all_nodes_around_a_hub_is_found():
    # All spokes agree with the hub. The lean strategy is dearer by a little, and to leave it costs 5 for each spoke.
    spokes = 300
    agree = np.array([[0.0, 5.0], [5.0, 0.0]])
    pairs = [(0, v) for v in range(1, spokes + 1)] + [(v, v % spokes + 1) for v in range(1, spokes + 1)]
    problem = ShardingProblem(
        name="hub",
        node_costs=(np.zeros(2), *(np.array([1.0, 0.9]) for _ in range(spokes))),
        edges=tuple(pairs),
        edge_costs=tuple(agree for _ in pairs),
    )
    items = [Item(node=v, start=0, end=1, usage=np.array([1.0, 2.0])) for v in range(1, spokes + 1)]
    items += [Item(node=0, start=0, end=1, usage=np.array([0.0, 0.5 * spokes]))]
    found = Found(problem)
    instance = SearchProblem.of(problem, MemoryLimit.of(items, 2.5 * spokes))
    load_kernels(problem, MemoryLimit.of(items, 2.5 * spokes))
    anneal_within(instance, found, time.process_time() + 1.0)
    assert found.choices is not None
    assert found.choices.all()
    assert found.cost == pytest.approx(0.9 * spokes)


def test_with_a_time_limit_small_problems_are_still_proven():
    rng = np.random.default_rng(13)
    infeasible, seconds = 0, []
    for _ in range(40):
        problem, items = random_case(rng, 6, 4)
        legal = legal_choices(problem)
        peaks = [peak(items, c) for c in legal]
        for limit in {0.0, float(np.median(peaks or [0.0]))}:
            fitting = [problem.evaluate(c) for c, p in zip(legal, peaks, strict=True) if p <= limit]
            solution = solve_within(problem, MemoryLimit.of(items, limit), time_limit_seconds=60.0)
            seconds.append(solution.seconds)
            if not fitting:
                assert solution.status is Status.INFEASIBLE
                infeasible += 1
                continue
            assert solution.status is Status.OPTIMAL
            assert solution.objective == pytest.approx(min(fitting), rel=1e-9)
    assert infeasible > 10
    assert np.median(seconds) < 5.0  # it ends with the proof, long before the limit; only the first ones compile


def large_case(seed, nodes=1500):
    """A long graph with local edges in which cheap strategies hold much."""
    rng = np.random.default_rng(seed)
    node_costs = tuple(rng.integers(0, 100, 10).astype(float) for _ in range(nodes))
    edges = tuple((max(0, v - int(rng.integers(1, 30))), v) for v in range(1, nodes) for _ in range(3))
    edges = tuple((a, b) for a, b in edges if a != b)
    matrices = tuple(rng.integers(0, 100, (10, 10)).astype(float) for _ in edges)
    problem = ShardingProblem(name="large", node_costs=node_costs, edges=edges, edge_costs=matrices)
    items = [
        Item(node=v, start=v, end=min(nodes, v + int(rng.integers(1, 300))), usage=rng.integers(0, 1000, 10) * 1.0)
        for v in range(nodes)
    ]
    return problem, items


def load_kernels(problem, memory):
    """So that no time limit has to pay for compiling."""
    anneal_within(SearchProblem.of(problem, memory), Found(problem), time.process_time() + 0.01)
    price_search(problem, memory, time.process_time())


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize("seconds", [1.0, 4.0])
def test_the_time_limit_is_kept_on_a_large_problem(seconds):
    # In one second less can be prepared.
    problem, items = large_case(1, nodes=1500 if seconds > 1 else 400)
    free = MemoryLimit.of(items, 1e12)
    limit = 1.1 * free.least_peak() + 3000.0
    memory = MemoryLimit.of(items, limit)
    load_kernels(problem, memory)
    began = time.process_time()
    solution = solve_within(problem, memory, time_limit_seconds=seconds)
    assert time.process_time() - began < 1.05 * seconds + 0.1
    assert solution.status is Status.TIME_LIMIT
    assert memory.allows(solution.choices)
    assert 0 <= solution.bound <= solution.objective == problem.evaluate(solution.choices)


@pytest.mark.slow
def test_a_limit_that_was_not_reached_names_the_least_usage_found():
    # Two strategies of every node hold 1 at either of two times: each half of the nodes fits, all of them cannot.
    problem, _ = large_case(2, nodes=400)
    rng = np.random.default_rng(2)
    items = []
    for v in range(400):
        early = rng.integers(500, 1000, 10) * 1.0
        items += [Item(node=v, start=0, end=1, usage=early), Item(node=v, start=1, end=2, usage=1500.0 - early)]
    # The sum of both times is 600,000 whatever is chosen.
    load_kernels(problem, MemoryLimit.of(items, 299_000.0))
    with pytest.raises(SolverError) as raised:
        solve_within(problem, MemoryLimit.of(items, 299_000.0), time_limit_seconds=1.0)
    assert "the least usage found is 3" in str(raised.value)
    assert "the limit 299,000" in str(raised.value)
