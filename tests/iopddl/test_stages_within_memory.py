"""Stages of captured models where memory binds: both searches are as good as HiGHS on the whole stage."""

import pytest

from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.solve_limited import solve_limited
from alpa_explore.iopddl.search import solve_within
from tests.intra_op.stages import block_of, chain, on_mesh, whole


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "shape", "share"),
    [
        pytest.param(lambda: whole(chain(3)), (2, 2), 0.15, id="chain, little"),
        pytest.param(lambda: block_of("gpt-tiny", 4), (2, 4), 0.15, id="gpt-tiny, little"),
        # With 0.15, HiGHS takes minutes.
        pytest.param(lambda: block_of("moe-tiny", 4), (2, 2), 0.6, id="moe-tiny"),
    ],
)
def test_with_a_time_limit_the_fastest_choice_that_fits_is_that_of_highs(stage, shape, share):
    stage_problem, problem = on_mesh(stage(), shape, 0.25)
    unlimited = stage_problem.memory_limit(2, 0.0)
    least = unlimited.least_peak()
    fastest = solve(problem)
    most = unlimited.peak(fastest.choices)
    assert most > least
    memory = stage_problem.memory_limit(2, least + share * (most - least))
    exact = solve_limited(problem, memory, "highs")
    assert exact.status is Status.OPTIMAL
    # The searches end when the optimum is proven; the limit is not to be met on a busy machine.
    for found in (
        solve_within(problem, memory, time_limit_seconds=300.0),
        solve_limited(problem, memory, time_limit_seconds=300.0, bound=fastest.bound),
    ):
        assert memory.allows(found.choices)
        assert found.objective == pytest.approx(exact.objective, rel=1e-6)
        assert found.status is Status.OPTIMAL
