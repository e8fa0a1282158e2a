"""One body for all solvers: the stated optimum of every stored problem, and brute force on small random ones."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alpa_explore.errors import OptionError, SolverError
from alpa_explore.intra_op.bounds.messages import prune_by_bound
from alpa_explore.intra_op.ilp.enumerated_ilp import solve_enumerated
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.problem.solution import ShardingSolution, Status
from alpa_explore.intra_op.solve import SOLVERS, solve
from alpa_explore.intra_op.tuning import EASY_ILP_VARIABLES
from alpa_explore.iopddl.files import read_problem
from tests.intra_op.problems import drawn

PROBLEMS = Path(__file__).parent.parent / "problems"
QUICK = {
    "t2": SOLVERS,
    "t7": ("auto", "elimination", "ilp", "highs"),
    "block_16x8": ("auto", "elimination", "ilp"),
    "r200x8": ("auto", "elimination", "ilp"),
    "gpt2_8x8": ("auto", "elimination", "ilp"),
    "t36r": ("auto", "elimination"),
    "llama2_8x8": ("auto", "elimination"),
    "r1000x12": ("auto", "elimination"),
}
SLOW = {"t7": ("cbc",), "t36r": ("ilp",), "block_16x8": ("highs",), "gpt2_8x8": ("highs",), "r200x8": ("highs",)}
STORED = [pytest.param(n, s, id=f"{n}-{s}") for n, solvers in QUICK.items() for s in solvers] + [
    pytest.param(n, s, id=f"{n}-{s}", marks=pytest.mark.slow) for n, solvers in SLOW.items() for s in solvers
]
RUNS = {"auto": 400, "elimination": 400, "ilp": 200, "highs": 200, "cbc": 40}


@pytest.mark.sweep(kept=6)
@pytest.mark.parametrize(("name", "solver"), STORED)
def test_the_stated_optimum_of_a_stored_problem_is_found(name: str, solver: str) -> None:
    problem, _, optimum = read_problem(PROBLEMS / f"{name}.json.gz")
    solution = solve(problem, solver)
    assert solution.status is Status.OPTIMAL
    assert solution.objective == pytest.approx(optimum, rel=1e-9)
    assert solution.objective == problem.evaluate(solution.choices) == solution.bound


def brute_force(problem: ShardingProblem) -> float:
    """The least cost over all choices, each one evaluated; inf when none is legal."""
    count = len(problem.node_costs)
    total = np.zeros([1] * count)

    def spread(table: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        shape = [1] * count
        for axis, size in zip(axes, table.shape, strict=True):
            shape[axis] = size
        return np.where(table >= FORBIDDEN, np.inf, table).reshape(shape)

    for v, costs in enumerate(problem.node_costs):
        total = total + spread(costs, (v,))
    for (a, b), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        total = total + (spread(matrix, (a, b)) if a < b else spread(matrix.T, (b, a)))
    return float(total.min())


def random_problem(seed: int) -> ShardingProblem:
    """Up to seven nodes: parallel edges both ways, isolated nodes, ties, forbidden entries, many scales."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, size=rng.integers(1, 8))
    scale = float(rng.choice([1e-9, 1e-6, 1.0, 1e6]))
    forbidden = float(rng.choice([0.0, 0.1, 0.35]))

    def costs(*shape: int) -> np.ndarray:
        kind = rng.integers(3)
        values = (
            rng.integers(0, 3, shape)
            if kind == 0
            else rng.random(shape)
            if kind == 1
            else 10 ** rng.uniform(-3, 1, shape)
        )
        return np.where(rng.random(shape) < forbidden, rng.choice([1e18, 3e18]), values * scale)

    count = len(sizes)
    edges = []
    for _ in range(int(rng.integers(0, 2 * count + 1)) if count > 1 else 0):
        a, b = rng.choice(count, 2, replace=False)
        edges.append((int(a), int(b)))
    return drawn(sizes, edges, costs, f"seed {seed}")


def assert_like_brute_force(problem: ShardingProblem, solver: str) -> None:
    least = brute_force(problem)
    solution = solve(problem, solver)
    if least == math.inf:
        assert solution.status is Status.INFEASIBLE
        assert solution.choices == ()
        assert solution.objective == math.inf
    else:
        assert solution.status is Status.OPTIMAL
        assert solution.objective == problem.evaluate(solution.choices)
        assert solution.objective == pytest.approx(least, rel=1e-9, abs=0)
        assert solution.gap == 0


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_solver_equals_brute_force_on_random_problems(solver: str) -> None:
    for seed in range(RUNS[solver]):
        assert_like_brute_force(random_problem(seed), solver)


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_the_ilp_as_alpa_writes_it_equals_brute_force(backend: str) -> None:
    for seed in range(60):
        problem = random_problem(seed)
        solution = solve_enumerated(problem, backend=backend, alpa_form=True)
        assert solution.objective == pytest.approx(brute_force(problem), rel=1e-9)


@pytest.mark.parametrize("solver", ["auto", "elimination"])
def test_the_steps_for_wide_problems_equal_brute_force_too(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alpa_explore.intra_op.elimination.tuning.CHEAP_JOINS", -1.0)
    monkeypatch.setattr("alpa_explore.intra_op.elimination.tuning.JOINS_A_TRY", 1.0)
    monkeypatch.setattr("alpa_explore.intra_op.elimination.tuning.CORE_JOINS", 0)
    for seed in range(300):
        assert_like_brute_force(random_problem(seed), solver)


@pytest.mark.slow
def test_auto_gives_a_core_that_is_too_wide_to_the_ilp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alpa_explore.intra_op.elimination.tuning.CHEAP_JOINS", -1.0)
    monkeypatch.setattr("alpa_explore.intra_op.elimination.elimination_order.Limits.allow", lambda self, order: False)
    problem = clique(nodes=9, strategies=6)
    assert solve(problem).variables > 0, "a clique is too much for the dual bound"
    for seed in range(150):
        assert_like_brute_force(random_problem(seed), "auto")


def clique(*, nodes: int, strategies: int) -> ShardingProblem:
    rng = np.random.default_rng(0)
    edges = ((a, b) for a in range(nodes) for b in range(a + 1, nodes))
    return drawn([strategies] * nodes, edges, lambda *shape: rng.random(shape), "clique")


def test_elimination_refuses_a_clique_that_is_too_wide_for_it() -> None:
    with pytest.raises(SolverError, match=r"too wide.*solver='auto'"):
        solve(clique(nodes=16, strategies=10), "elimination")


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["auto", "highs", "ilp", "cbc"])
def test_at_the_time_limit_the_best_choice_so_far_comes_with_a_bound(solver: str) -> None:
    problem = clique(nodes=24, strategies=8)
    solution = solve(problem, solver, time_limit_seconds=1.0)
    assert solution.status is Status.TIME_LIMIT
    assert "time limit" in solution.status.value
    assert solution.objective == problem.evaluate(solution.choices)
    assert 0 < solution.bound < solution.objective
    assert 0 < solution.gap < 1
    assert solution.seconds < 120, "the time limit was ignored"


@pytest.mark.parametrize("limit", [0, -1.0, math.nan])
def test_a_time_limit_that_is_not_positive_is_refused(limit: float) -> None:
    with pytest.raises(OptionError, match="positive"):
        solve(random_problem(1), time_limit_seconds=limit)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_problem_without_nodes_costs_nothing_and_a_node_without_strategies_is_infeasible(solver: str) -> None:
    solution = solve(ShardingProblem(name="empty", node_costs=(), edges=(), edge_costs=()), solver)
    assert (solution.status, solution.choices, solution.objective) == (Status.OPTIMAL, (), 0.0)
    nodes, tables = (np.ones(2), np.ones(0)), (np.ones((2, 0)),)
    none = ShardingProblem(name="none", node_costs=nodes, edges=((0, 1),), edge_costs=tables)
    assert solve(none, solver).status is Status.INFEASIBLE


@pytest.mark.parametrize(
    ("nodes", "edges", "matrices"),
    [
        ((np.array([1.0, np.nan]), np.ones(2)), (), ()),
        ((np.array([1.0, -np.inf]), np.ones(2)), (), ()),
        ((np.ones(2), np.ones(2)), ((0, 2),), (np.ones((2, 2)),)),
        ((np.ones(2), np.ones(2)), ((1, 1),), (np.ones((2, 2)),)),
        ((np.ones(2), np.ones(3)), ((0, 1),), (np.ones((3, 2)),)),
        ((np.ones(2), np.ones(2)), ((0, 1),), (np.full((2, 2), np.nan),)),
        ((np.ones(2), np.ones(2)), ((0, 1),), (np.full((2, 2), -1.0),)),
        ((np.ones(2), -np.ones(2)), (), ()),
    ],
)
def test_a_damaged_problem_is_refused(nodes: tuple, edges: tuple, matrices: tuple) -> None:
    with pytest.raises(SolverError, match="Damaged"):
        solve(ShardingProblem(name="damaged", node_costs=nodes, edges=edges, edge_costs=matrices))


@pytest.mark.parametrize("solver", SOLVERS)
def test_solves_in_threads_give_the_same_and_print_nothing(solver: str, capfd: pytest.CaptureFixture[str]) -> None:
    problems = [random_problem(seed) for seed in range(12)]
    sequential = [solve(p, solver).objective for p in problems]
    with ThreadPoolExecutor(4) as pool:
        in_threads = [s.objective for s in pool.map(lambda p: solve(p, solver), problems)]
    assert in_threads == sequential
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("nodes", [24, 30])
def test_a_wide_problem_gets_the_best_choice_found_and_a_bound_in_seconds(
    nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 24 nodes the ILP is small enough to be tried, and stopped early here; of 30 nodes it is not even built."""
    monkeypatch.setattr("alpa_explore.intra_op.tuning.WIDE_ILP_SECONDS", 0.2)
    problem = clique(nodes=nodes, strategies=8)
    asked_for = []

    def poor(asked: ShardingProblem, **options: Any) -> ShardingSolution:
        asked_for.append(asked)
        first = (0,) * len(asked.node_costs)
        return replace(solve_enumerated(asked, **options), choices=first, objective=asked.evaluate(first))

    monkeypatch.setattr("alpa_explore.intra_op.solve.solve_enumerated", poor)
    solution = solve(problem)
    assert bool(asked_for) == (problem.variables <= EASY_ILP_VARIABLES)
    assert solution.status is Status.UNPROVEN
    known = prune_by_bound(problem)
    assert known.bound * (1 - 1e-9) <= solution.bound < solution.objective == problem.evaluate(solution.choices)
    assert solution.objective <= problem.evaluate(known.best)
