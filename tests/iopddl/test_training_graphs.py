"""Training graphs that are short of memory: a legal choice within the limit and the time, as good as HiGHS proves."""

import json
import time

import pytest

from alpa_explore.intra_op.problem.memory_limit import MemoryLimit
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.iopddl.evaluator import evaluate_file
from alpa_explore.iopddl.files import read_problem
from alpa_explore.iopddl.search import solve_within
from tests.iopddl.test_anytime import load_kernels
from tests.iopddl.training_graphs import training_graph


@pytest.mark.sweep(kept=1)
@pytest.mark.parametrize("margin", [1.1, 1.0, 50.0])
def test_a_training_graph_gets_a_legal_choice_better_than_the_planted_one(margin, tmp_path):
    graph = training_graph(400, seed=1, margin=margin)
    (tmp_path / "graph.json").write_text(json.dumps(graph.document()))
    problem, memory, _ = read_problem(tmp_path / "graph.json")
    load_kernels(problem, memory)
    began = time.process_time()
    solution = solve_within(problem, memory, time_limit_seconds=5.0)
    assert time.process_time() - began < 1.05 * 5.0 + 0.1
    # By the file alone.
    evaluation = evaluate_file(tmp_path / "graph.json", solution.choices)
    planted = evaluate_file(tmp_path / "graph.json", graph.planted)
    assert evaluation.legal
    assert evaluation.fits
    assert evaluation.cost == pytest.approx(solution.objective)
    assert evaluation.cost < planted.cost
    assert solution.bound <= solution.objective


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_where_highs_proves_the_optimum_of_a_training_graph_it_is_found(seed):
    graph = training_graph(60, seed, margin=1.05, hubs=2)
    proven = solve_within(*graph[:2], "highs")
    assert proven.status is Status.OPTIMAL
    found = solve_within(*graph[:2], time_limit_seconds=20.0)
    assert found.objective == pytest.approx(proven.objective, rel=1e-9)
    assert found.bound <= proven.objective * (1 + 1e-9)
    assert graph.memory.allows(found.choices)


def test_nodes_that_hold_nothing_and_a_problem_without_items_have_the_optimum_without_a_limit():
    graph = training_graph(60, seed=4, hubs=2)
    empty = MemoryLimit.of([], 1.0)
    free = solve_within(graph.problem, empty)
    found = solve_within(graph.problem, empty, time_limit_seconds=10.0)
    assert free.status is Status.OPTIMAL
    assert found.objective == pytest.approx(free.objective)
