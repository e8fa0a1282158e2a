"""A plan whose stages are not proven says so, and is proven when it is asked for again."""

from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve import solve
from alpa_explore.pricing import tasks

B = 4


def unproven(problem, solver, *, gap=0.0):
    """An answer as of a problem that is too large for a proof."""
    found = solve(problem, solver, gap=gap)
    return replace(found, status=Status.UNPROVEN, bound=0.9 * found.objective) if found.choices else found


def planned(**options):
    return ax.plan(
        "mlp-tiny", "1x2:v100", num_microbatches=B, num_layers=2, scheduler="serial", solver="ilp", **options
    )


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    """Without a proof, again with one from the same cache, and with one alone."""
    with pytest.MonkeyPatch.context() as cache:
        cache.setenv("ALPA_EXPLORE_CACHE", str(tmp_path_factory.mktemp("cache")))
        with pytest.MonkeyPatch.context() as solver:
            solver.setattr(tasks, "solve", unproven)
            doubtful = planned()
        again = planned()
    return doubtful, again, planned(cache=False)


def test_a_plan_without_a_proof_says_by_how_much_another_one_may_be_faster(plans) -> None:
    doubtful, _, proven = plans
    (warning,) = doubtful.warnings
    assert "up to 11.0% faster" in warning, "0.1 / 0.9 of all but what is paid beside the stages"
    assert not proven.warnings


def test_what_was_not_proven_is_searched_again_when_the_plan_is_asked_for_again(plans) -> None:
    _, again, proven = plans
    assert not again.warnings
    assert again.predicted.iteration_seconds == pytest.approx(proven.predicted.iteration_seconds, rel=1e-12)
    assert 0 < again.statistics.cached_solves < again.statistics.distinct_solves, "the others are not searched again"
