"""The factor form: legal, exactly priced, near the optimum; on one axis its linear costs are the exact ones."""

import pytest

from alpa_explore.formulations.factor_ilp import solve_factors
from alpa_explore.formulations.methods import polish
from alpa_explore.formulations.tuning import FACTOR_GAP
from alpa_explore.intra_op.bounds.messages import is_legal
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.axis_options import node_options
from alpa_explore.sharding.splits import splits_for
from tests.intra_op.stages import block_of, chain, on_mesh, whole

MESH_SHAPES = [(4,), (2, 2), (4, 2), (16, 8)]


@pytest.fixture(scope="module")
def chains():
    return [whole(chain(seed)) for seed in range(3)]


@pytest.fixture(scope="module")
def tiny_block():
    return block_of("gpt-tiny", 8)


def check(stage, shape, inverse_b, unpolished_gap=0.05, polished_gap=0.05):
    built, problem = on_mesh(stage, shape, inverse_b)
    best = solve(problem).objective
    answer = solve_factors(built, problem, inverse_b)
    assert answer.finished
    assert answer.impossible == 0
    assert is_legal(problem, answer.choices)
    unpolished = problem.evaluate(answer.choices)
    polished = polish(problem, node_options(built), answer.choices)
    assert is_legal(problem, polished)
    assert best * (1 - 1e-9) <= problem.evaluate(polished) <= unpolished
    assert unpolished <= (1 + unpolished_gap) * best
    assert problem.evaluate(polished) <= (1 + polished_gap) * best
    return answer, problem


@pytest.mark.sweep(kept=2, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("shape", MESH_SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_random_stages_are_solved_legally_and_near_the_optimum(chains, seed, shape):
    # On problems with hardly any communication the linear costs alone may be further off; the polished choice may not.
    check(chains[seed], shape, 1 / 8, unpolished_gap=0.25)


@pytest.mark.parametrize("seed", range(3))
def test_on_one_axis_the_linear_costs_are_the_exact_ones(chains, seed):
    built, problem = on_mesh(chains[seed], (8,), 0.25)
    answer = solve_factors(built, problem, 0.25)
    exact = problem.evaluate(answer.choices)
    assert answer.linear_seconds == pytest.approx(exact, rel=1e-6)
    assert solve(problem).objective <= exact <= (1 + 2 * FACTOR_GAP) * solve(problem).objective


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("shape", [(4, 2), (8, 8)])
def test_a_transformer_block_is_near_the_optimum_with_an_eighth_of_the_variables(tiny_block, shape):
    answer, problem = check(tiny_block, shape, 1 / 8)
    assert answer.variables < problem.variables / 8


def test_no_heavy_operator_is_left_undivided(tiny_block):
    built, problem = on_mesh(tiny_block, (4, 2), 1 / 8)
    answer = solve_factors(built, problem, 1 / 8)
    graph = tiny_block.layered.graph
    heavy = 0
    for node, choice in zip(built.nodes, answer.choices, strict=True):
        if node.priced is not None and node.kind.value == "operator":
            operator = graph.operators[node.subject]
            if splits_for(operator, graph.tensors).heavy:
                heavy += 1
                share = node.priced.strategies[choice].work_share
                assert share == min(s.work_share for s in node.priced.strategies)
    assert heavy > 10


def test_memory_counts_when_it_has_a_price(chains):
    built, _ = on_mesh(chains[0], (4, 2), 1 / 8)
    held = []
    for price in (0.0, 1e-6):
        problem = built.at(inverse_b=1 / 8, memory_price=price, microbatches_held=2)
        held.append(built.totals(solve_factors(built, problem, 1 / 8).choices).weight_bytes)
    assert held[1] < 0.5 * held[0]


def test_a_time_limit_that_is_too_short_still_gives_every_node_a_strategy(tiny_block):
    built, problem = on_mesh(tiny_block, (4, 2), 1 / 8)
    answer = solve_factors(built, problem, 1 / 8, time_limit_seconds=1e-3)
    assert not answer.finished
    assert len(answer.choices) == len(problem.node_costs)
    polished = polish(problem, node_options(built), answer.choices)
    assert is_legal(problem, polished)


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_three_equal_axes_are_solved_too(chains, seed):
    # Equal axes may be exchanged, which makes the search long.
    check(chains[seed], (2, 2, 2), 1 / 8, unpolished_gap=0.25)


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize(("shape", "num_microbatches"), [((16, 8), 8), ((8, 8), 32), ((4, 2), 128), ((8, 4, 4), 32)])
def test_a_block_of_gpt_is_within_5_percent_by_the_linear_costs_alone(shape, num_microbatches):
    answer, problem = check(block_of("gpt-1.3b", num_microbatches), shape, 1 / num_microbatches)
    assert answer.variables < problem.variables / (60 if len(shape) == 3 else 7)


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "shape"), [("wide-resnet-1b", (8, 8)), ("moe-1.3b", (4, 2)), ("mlp-tiny", (4, 2)), ("mlp-tiny", (8, 8))]
)
def test_a_block_of_other_families_is_within_5_percent(model, shape):
    check(block_of(model, 8), shape, 1 / 8)
