"""Context parallelism under the interpreter: a Llama with grouped keys whose sequence is divided equals the whole."""

import pytest

from alpa_explore.baselines.roles import Role
from alpa_explore.programs.check import check
from alpa_explore.sharding.rules.attention import CONTEXT
from tests.programs.cases import Case, following

MODEL = "tied llama of 1"


def used(case, mesh, choose):
    """The factors of attention, forward and backward, under a choice."""
    problem = case.problem(0, 3, mesh)
    chosen = zip(problem.nodes, choose(problem), strict=True)
    return {
        node.priced.strategies[choice].factors
        for node, choice in chosen
        if node.priced is not None and "attention" in case.graph.operators[node.subject].kind
    }


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("factor", sorted(CONTEXT))
def test_a_divided_sequence_equals_the_whole(factor, devices) -> None:
    # Ulysses divides the heads of keys and values, of which the other model has two.
    case = Case("llama of 1" if factor == "ulysses" else MODEL, samples=1, context=factor)
    choose = following(Role.CONTEXT)
    program = case.program([((0, 3), (devices,))], choose)
    check(program)
    case.assert_equal(program)
    # So short, all keys beside the queries in their own order are as fast, and have the same specs.
    assert used(case, (devices,), choose) == {("queries" if factor == "queries-zigzag" else factor,)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "roles",
    [
        (Role.DATA, Role.CONTEXT),
        (Role.CONTEXT, Role.TENSOR_SEQUENCE),
        (Role.DATA_ZERO_1, Role.CONTEXT_ZERO_1),
        (Role.SHARDED_DATA, Role.CONTEXT_SHARDED),
        (Role.CONTEXT_SHARDED, Role.TENSOR_SEQUENCE),
    ],
)
def test_beside_data_and_tensor_parallelism(roles) -> None:
    case = Case(MODEL, samples=1 if roles[1] is Role.TENSOR_SEQUENCE else 2, num_microbatches=2, context="ring-zigzag")
    choose = following(*roles)
    case.assert_equal(case.program([((0, 3), (2, 2))], choose))
    other = "heads" if roles[1] is Role.TENSOR_SEQUENCE else "batch"
    assert {frozenset(factors) for factors in used(case, (2, 2), choose)} == {frozenset((other, "ring-zigzag"))}


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "devices"), [("ring", 2), ("ring", 4), ("ulysses", 4)])
def test_windows_and_sinks_over_a_divided_sequence_equal_the_whole(factor, devices) -> None:
    case = Case("with-sinks", samples=1, context=factor)
    choose = following(Role.CONTEXT)
    program = case.program([((0, 3), (devices,))], choose)
    check(program)
    case.assert_equal(program)
    assert used(case, (devices,), choose) == {(factor,)}
