"""What a rank holds at most, said without running, is what it holds when it runs."""

import pytest

from alpa_explore.programs.execution.rehearsal import live_bytes
from tests.programs.cases import Case, at_random, random_plan


@pytest.mark.parametrize(
    "model", ["mlp-tiny", "gpt-tiny", pytest.param("moe-tiny", marks=(pytest.mark.slow, pytest.mark.sweep(kept=1)))]
)
@pytest.mark.parametrize("seed", range(3))
def test_the_peak_of_every_rank_is_that_of_a_run(model, seed) -> None:
    options, stages, schedule = random_plan(seed)
    case = Case(model, **options)
    program = case.program(stages, at_random(seed), schedule)
    made = case.assert_equal(program)
    found = live_bytes(program)
    assert {rank: one.peak_bytes for rank, one in found.items()} == made.peak_bytes
    assert all(one.lasting_bytes < one.peak_bytes for one in found.values())


def test_optimizer_state_is_shared_out_with_the_weights() -> None:
    case = Case("mlp-tiny")
    whole = sum(p.state_bytes_per_element * case.graph.tensors[p.tensor].elements for p in case.graph.parameters)
    program = case.program([((0, 1), ()), ((2, 3), ())], at_random(0))
    assert sum(one.optimizer_bytes for one in live_bytes(program).values()) == whole
