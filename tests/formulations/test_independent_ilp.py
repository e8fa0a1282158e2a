"""The independent form: what each axis chooses alone, its bias, and the joint repair."""

import numpy as np
import pytest

from alpa_explore.errors import SolverError
from alpa_explore.formulations.comparison import StageInstance
from alpa_explore.formulations.independent_ilp import labels_of, solve_independent
from alpa_explore.formulations.methods import keep_one_axis, polish, repair
from alpa_explore.intra_op.bounds.messages import is_legal
from alpa_explore.intra_op.problem.sharding_problem import FORBIDDEN, ShardingProblem
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.axis_options import (
    batch_options,
    batch_share,
    chosen_options,
    nearest_strategies,
    node_options,
)
from tests.intra_op.stages import block_of, chain, on_mesh, whole


@pytest.fixture(scope="module")
def chains():
    return [whole(chain(seed)) for seed in range(3)]


@pytest.fixture(scope="module")
def tiny_block():
    return block_of("gpt-tiny", 16)


def solve_axes(stage, shape, inverse_b):
    built, problem = on_mesh(stage, shape, inverse_b)
    model = built.model
    answer = solve_independent(StageInstance(stage=stage, device=model.device, mesh=model.mesh, inverse_b=inverse_b))
    nodes = node_options(built)
    return built, problem, nodes, answer, labels_of(nodes, answer.options)


@pytest.mark.parametrize("seed", range(3))
def test_the_independent_form_is_exact_on_one_axis(chains, seed):
    _, problem, nodes, answer, requested = solve_axes(chains[seed], (4,), 0.25)
    choices, impossible = nearest_strategies(problem, nodes, requested)
    assert impossible == 0
    assert answer.finished
    assert problem.evaluate(choices) == pytest.approx(solve(problem).objective, rel=1e-9)


@pytest.mark.sweep(kept=4, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 2), (4, 2), (2, 2, 2), (16, 8)])
@pytest.mark.parametrize("seed", range(3))
def test_the_repaired_answer_is_legal_and_near_the_optimum(chains, seed, shape):
    _, problem, nodes, _, requested = solve_axes(chains[seed], shape, 1 / 8)
    choices = repair(problem, nodes, requested)
    best = solve(problem).objective
    assert is_legal(problem, choices)
    assert best * (1 - 1e-9) <= problem.evaluate(choices) <= 1.05 * best


def test_every_axis_splits_a_batch_that_cannot_be_split_twice_and_the_repair_divides_the_rest(tiny_block):
    # A microbatch of 4 samples on (4, 4): each axis alone cuts it fourfold, together they cannot.
    built, problem, nodes, answer, requested = solve_axes(tiny_block, (4, 4), 1 / 16)
    _, impossible = nearest_strategies(problem, nodes, requested)
    assert impossible > 10
    assert batch_share(built, answer.options) > 0.9
    choices = repair(problem, nodes, requested)
    assert is_legal(problem, choices)
    assert batch_share(built, chosen_options(nodes, choices)) < 0.2
    assert problem.evaluate(choices) <= 1.05 * solve(problem).objective


def test_the_kept_axis_has_its_requested_options(tiny_block):
    _, problem, nodes, _, requested = solve_axes(tiny_block, (4, 4), 1 / 16)
    kept = keep_one_axis(problem, nodes, requested)
    assert len(kept) == 2
    for axis, choices in enumerate(kept):
        for node, labels, choice in zip(nodes, requested, choices, strict=True):
            if (node.labels[:, axis] == labels[axis]).any():
                assert node.labels[choice, axis] == labels[axis]
    assert problem.evaluate(repair(problem, nodes, requested)) <= min(map(problem.evaluate, kept))


def test_polishing_never_raises_the_cost(chains):
    _, problem, nodes, _, _ = solve_axes(chains[1], (4, 2), 1 / 8)
    rng = np.random.default_rng(0)
    better = 0
    for _ in range(5):
        start = tuple(int(rng.integers(len(costs))) for costs in problem.node_costs)
        end = polish(problem, nodes, start)
        assert is_legal(problem, end)
        assert problem.evaluate(end) <= problem.evaluate(start)
        better += problem.evaluate(end) < problem.evaluate(start)
    assert better == 5


def test_the_repair_raises_where_nothing_is_legal(chains):
    built, problem = on_mesh(chains[0], (2, 2), 1 / 8)
    nodes = node_options(built)
    forbidden = tuple(np.full_like(m, FORBIDDEN) for m in problem.edge_costs)
    impossible = ShardingProblem(
        name="impossible", node_costs=problem.node_costs, edges=problem.edges, edge_costs=forbidden
    )
    with pytest.raises(SolverError, match="No legal choice"):
        repair(impossible, nodes, [(0, 0)] * len(nodes))


def test_options_and_strategies_are_two_views_of_one_thing(tiny_block):
    built, _ = on_mesh(tiny_block, (4, 2), 1 / 16)
    for node, options in zip(built.nodes, node_options(built), strict=True):
        assert options.labels.shape == (len(node.microbatch_seconds), 2)
        assert len(options.strategy_of) == len(node.microbatch_seconds)
        if node.priced is not None:
            for strategy, row in zip(node.priced.strategies, options.labels, strict=True):
                columns = tuple(zip(*(*strategy.inputs, *strategy.outputs), strict=True))
                assert tuple(options.options[f] for f in row) == columns


def test_the_batch_is_traced_through_views_and_products(tiny_block):
    built, _ = on_mesh(tiny_block, (2, 2), 1 / 16)
    batch = batch_options(built)
    operators = [v for v, node in enumerate(built.nodes) if node.kind.value == "operator"]
    # All but the reshapings of weights see the batch.
    assert len(batch) > 0.8 * len(operators)
    nodes = node_options(built)
    all_axes = [(min(batch[v]),) * 2 if v in batch else (o.options[0],) * 2 for v, o in enumerate(nodes)]
    assert batch_share(built, all_axes) == 1.0
    assert batch_share(built, [(o.options[0], o.options[0]) for o in nodes]) < 0.5
