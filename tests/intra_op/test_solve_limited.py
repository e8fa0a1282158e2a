"""Solving under a memory limit: equal to brute force, for every limit, and on the problems of the contest."""

import gzip
import itertools
import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from alpa_explore.errors import SolverError
from alpa_explore.intra_op import solve_limited as solving
from alpa_explore.intra_op.ilp.enumerated_ilp import least_limit
from alpa_explore.intra_op.memory import price_search as searching
from alpa_explore.intra_op.problem.memory_limit import Item, MemoryLimit
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve_limited import solve_limited
from alpa_explore.iopddl.files import read_problem
from tests.intra_op.problems import drawn, legal_choices, whole_numbers

PROBLEMS = Path(__file__).parent.parent / "problems"


def random_case(rng):
    nodes = int(rng.integers(2, 7))
    sizes = rng.integers(1, 5, nodes)
    pairs = [p for p in itertools.combinations(range(nodes), 2) if rng.random() < 0.5]

    problem = drawn(sizes, pairs, whole_numbers(rng, 9, 0.08))
    items = []
    for v in range(nodes):
        for _ in range(int(rng.integers(0, 3))):
            start, end = sorted(rng.integers(0, 8, 2).tolist())
            usage = rng.integers(0, 10, sizes[v]) if rng.random() < 0.8 else np.full(sizes[v], rng.integers(0, 10))
            items.append(Item(node=v, start=start, end=end, usage=usage * 1e6))
    return problem, items


def held_at(items, choices, time):
    return sum(item.usage[choices[item.node]] for item in items if item.start <= time < item.end)


def test_compiling_takes_nothing_of_the_time_of_the_price_search(monkeypatch):
    """Fault of 0.1.0: the first plan after an installation was up to the planner's tolerance slower than the next."""
    problem, items = random_case(np.random.default_rng(0))
    legal = legal_choices(problem)
    peaks = {c: max(held_at(items, c, t) for t in range(9)) for c in legal}
    best = min(legal, key=problem.evaluate)
    memory = MemoryLimit.of(items, max(peak for peak in peaks.values() if peak < peaks[best]))
    expected = searching.price_search(problem, memory, math.inf)
    clock, descend, results = [0.0], searching.descend, []

    def compiling(*arguments):
        clock[0] += 100.0
        return descend(*arguments)

    def searched(*arguments, **options):
        results.append(searching.price_search(*arguments, **options))
        return results[-1]

    monkeypatch.setattr(searching, "descend", compiling)
    for module in (searching, solving):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(solving, "price_search", searched)
    found = searching.price_search(problem, memory, 20.0, compiling_counts=False)
    assert (found.choices, found.bound) == (expected.choices, expected.bound)
    assert searching.price_search(problem, memory, 120.0).choices is None, "a limit of the user counts all"
    assert solve_limited(problem, memory).status is Status.OPTIMAL
    assert results[0].bound > -math.inf


@pytest.mark.slow
def test_every_limit_gives_the_optimum_of_brute_force():
    rng = np.random.default_rng(11)
    infeasible = tightened = 0
    for _ in range(200):
        problem, items = random_case(rng)
        legal = legal_choices(problem)
        peaks = [max((held_at(items, c, t) for t in range(9)), default=0.0) for c in legal]
        for limit in {0.0, 4e6, float(np.median(peaks or [0.0])), max(peaks, default=1.0)}:
            memory = MemoryLimit.of(items, limit)
            fitting = [problem.evaluate(c) for c, peak in zip(legal, peaks, strict=True) if peak <= limit]
            solution = solve_limited(problem, memory)
            if not fitting:
                assert solution.status is Status.INFEASIBLE
                infeasible += bool(legal)
                continue
            assert solution.status is Status.OPTIMAL
            assert solution.objective == pytest.approx(min(fitting), rel=1e-9)
            assert solution.bound == solution.objective
            assert max(held_at(items, solution.choices, t) for t in range(9)) <= limit
            tightened += min(fitting) > min(map(problem.evaluate, legal))
    assert infeasible > 50
    assert tightened > 50


def test_the_least_limit_is_the_least_peak_of_brute_force():
    rng = np.random.default_rng(14)
    raised = 0
    for _ in range(80):
        problem, items = random_case(rng)
        peaks = [max(held_at(items, c, t) for t in range(9)) for c in legal_choices(problem)]
        if not peaks:
            continue
        memory = MemoryLimit.of(items, 0.0)
        least, exact = least_limit(problem, memory, 60.0)
        assert exact
        assert least == pytest.approx(min(peaks), rel=1e-6, abs=1.0)
        raised += min(peaks) > memory.least_peak() + 1
    assert raised > 5


def test_the_profile_is_what_is_alive_at_each_time():
    rng = np.random.default_rng(12)
    for _ in range(50):
        problem, items = random_case(rng)
        memory = MemoryLimit.of(items, 1e7)
        choices = tuple(int(rng.integers(len(c))) for c in problem.node_costs)
        expected = [held_at(items, choices, t) for t in range(9)]
        assert memory.peak(choices) == max(expected)
        assert memory.least_peak() <= memory.peak(choices)
        profile = memory.profile([float(i.usage[choices[i.node]]) for i in items])
        assert profile.tolist() == expected[: len(profile)]
        assert not any(expected[len(profile) :])


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "optimum"), [("iopddl_b", 532843.0), ("iopddl_g", 217039.0)])
def test_the_problems_of_the_contest(name, optimum):
    path = PROBLEMS / f"{name}.json.gz"
    solution = solve_limited(*read_problem(path)[:2])
    assert (solution.status, solution.objective) == (Status.OPTIMAL, optimum)
    # Added up again from the file itself, in integers.
    problem = json.loads(gzip.decompress(path.read_bytes()))["problem"]
    nodes, edges, s = problem["nodes"], problem["edges"], solution.choices
    total = sum(costs[k] for costs, k in zip(nodes["costs"], s, strict=True))
    for (a, b), costs in zip(edges["nodes"], edges["costs"], strict=True):
        total += costs[s[a] * len(nodes["costs"][b]) + s[b]]
    assert total == optimum
    for time in range(max(end for _, end in nodes["intervals"])):
        alive = (v for v, (start, end) in enumerate(nodes["intervals"]) if start <= time < end)
        assert sum(nodes["usages"][v][s[v]] for v in alive) <= problem["usage_limit"]


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["bounds.tuning.LARGEST_ILP_VARIABLES", "tuning.ILP_VARIABLES_A_SECOND"])
def test_prices_alone_find_choices_that_fit_and_bounds_that_hold(limit, monkeypatch):
    # Every problem counts as too large for an ILP, or for the time that is left for building one.
    monkeypatch.setattr(f"alpa_explore.intra_op.{limit}", -1)
    monkeypatch.setattr(solving, "solve_enumerated", None)
    rng = np.random.default_rng(13)
    proven = unproven = missed = 0
    for _ in range(60):
        problem, items = random_case(rng)
        legal = legal_choices(problem)
        limit = float(np.median([max((held_at(items, c, t) for t in range(9)), default=0.0) for c in legal] or [0.0]))
        fitting = [c for c in legal if all(held_at(items, c, t) <= limit for t in range(9))]
        try:
            solution = solve_limited(problem, MemoryLimit.of(items, limit), time_limit_seconds=0.4)
        except SolverError:
            missed += bool(fitting)
            continue
        if not fitting:
            assert solution.status is Status.INFEASIBLE
            continue
        least = min(map(problem.evaluate, fitting))
        assert solution.choices in fitting
        assert solution.bound <= least + 1e-6 <= solution.objective + 2e-6
        proven += solution.status is Status.OPTIMAL
        unproven += solution.status is Status.TIME_LIMIT
        assert solution.status is not Status.OPTIMAL or solution.objective == pytest.approx(least, rel=1e-9)
    assert proven > 15
    assert unproven > 0
    assert missed < 10, "the descent should find a choice that fits in most small cases"


@pytest.mark.slow
def test_highs_prints_nothing_not_even_its_name_when_it_first_runs():
    """A process of its own, as HiGHS prints it once a process: commands print JSON."""
    script = """
import numpy as np
from alpa_explore.intra_op.ilp.enumerated_ilp import solve_enumerated
from alpa_explore.intra_op.problem.sharding_problem import ShardingProblem
costs = np.arange(4.0)
pair = ShardingProblem(name="pair", node_costs=(costs, costs), edges=((0, 1),), edge_costs=(np.eye(4),))
for seconds in (None, 10.0):
    solution = solve_enumerated(pair, time_limit_seconds=seconds, start=(0, 0))
    assert solution.objective == 1.0, solution
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
