"""Where a sweep over B and prices of memory looks for other choices, and that they are the best at their price."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.stage_totals import StageTotals
from alpa_explore.pricing import tuning
from alpa_explore.pricing.price_book import Reading, Search
from alpa_explore.pricing.stage_costs import Provenance
from alpa_explore.pricing.sweep import corner_between
from alpa_explore.pricing.tasks import Task, run_task
from tests.intra_op.stages import chain, on_mesh, whole

PARTS = st.floats(0.1, 10.0)
HELD, INVERSE_B = 2, 1 / 16


def sample(line: tuple[float, float], inverse_b: float) -> SimpleNamespace:
    """A choice whose seconds are line[0] + line[1] / B, solved exactly at one B."""
    totals = StageTotals(
        microbatch_seconds=line[0], iteration_seconds=line[1], weight_bytes=0, activation_bytes=0, workspace_bytes=0
    )
    return SimpleNamespace(
        point=SimpleNamespace(totals=totals), inverse_b=inverse_b, bound=line[0] + line[1] * inverse_b
    )


@given(flat=PARTS, steep=PARTS, low=st.floats(0.0, 0.3), high=st.floats(0.7, 1.0))
def test_a_corner_is_looked_at_where_a_choice_between_may_be_clearly_lower(flat, steep, low, high) -> None:
    few, many = (1.0, 10.0 + steep), (10.0 + flat, 0.5)  # the first is the faster one at a small 1/B
    crossing = (many[0] - few[0]) / (few[1] - many[1])
    assume(low + 0.05 < crossing < high - 0.05)
    found = corner_between(sample(few, low), sample(many, high))
    share = (crossing - low) / (high - low)
    chord = (1 - share) * (few[0] + few[1] * low) + share * (many[0] + many[1] * high)
    lines = few[0] + few[1] * crossing
    if lines * (1 - 2 * tuning.TOLERANCE) > chord:
        assert found == pytest.approx(crossing)
    else:
        assert found is None


def test_no_corner_is_looked_at_outside_of_two_samples_or_of_one_choice() -> None:
    few, many = (1.0, 10.0), (6.0, 1.0)
    assert corner_between(sample(few, 0.7), sample(many, 0.9)) is None, "they cross at 5/9"
    assert corner_between(sample(few, 0.1), sample(few, 0.9)) is None


@pytest.fixture(scope="module")
def problem():
    return on_mesh(whole(chain(1)), (4,), INVERSE_B)[0]


def seconds(choice):
    return choice.totals.latency_at(INVERSE_B)


def size(choice):
    return choice.totals.weight_bytes + HELD * choice.totals.activation_bytes


def peak(choice, held=HELD):
    return choice.totals.weight_bytes + held * choice.totals.activation_bytes + choice.totals.workspace_bytes


def searched(problem, search, memory=None):
    """The book of a search for the stage, on devices with so much memory."""
    device = problem.model.device if memory is None else replace(problem.model.device, memory_bytes=memory)
    where = {"least_held": 1, "mesh": problem.model.mesh, "device": device, "inverse_b": INVERSE_B}
    (book,) = run_task((problem.stage.layered,), Task(search=search, ranges=(((0, 0), HELD),), **where)).values()
    return book


@pytest.mark.parametrize("search", [Search.COMPOSED, Search.NEAR_OPTIMAL])
def test_between_a_fast_choice_that_overflows_and_a_lean_one_a_sweep_finds_the_best_at_their_price(
    problem, monkeypatch, search
):
    monkeypatch.setattr(tuning, "SWEEP_PRICES", tuning.SWEEP_PRICES[-1:])  # the leanest choice is the next one
    free = searched(problem, search)
    found = searched(problem, search, int(peak(min(free.choices, key=seconds))) - 1)
    fast, lean = min(found.choices, key=seconds), min(found.choices, key=size)
    price = (seconds(lean) - seconds(fast)) / (size(fast) - size(lean))
    best = solve(problem.at(inverse_b=INVERSE_B, memory_price=price, microbatches_held=HELD)).objective
    assert best < 0.99 * (seconds(fast) + price * size(fast))
    assert min(seconds(p) + price * size(p) for p in found.choices) == pytest.approx(best, rel=1e-9)


@pytest.mark.slow
def test_one_problem_that_a_solver_solves_gets_choices_as_good_as_those_that_are_composed(problem):
    ample = searched(problem, Search.COMPOSED)
    memory = int(peak(min(ample.choices, key=seconds))) - 1
    for limit in (None, memory):
        solved, composed = (searched(problem, search, limit) for search in (Search.NEAR_OPTIMAL, Search.COMPOSED))
        for b in (1, 16, 1000):
            quickest = [min(p.totals.latency_at(1 / b) for p in book.choices) for book in (solved, composed)]
            assert quickest[0] == pytest.approx(quickest[1], rel=2 * tuning.TOLERANCE)
        assert {x for x, _ in solved.bounds} >= {INVERSE_B, tuning.SMALLEST_INVERSE_B}
    assert min(map(peak, solved.choices)) == pytest.approx(min(map(peak, composed.choices)), rel=tuning.TOLERANCE)
    assert Provenance.CONVEX in {p.provenance for p in solved.choices}
    reading = Reading(book=solved, inverse_b=INVERSE_B, memory_bytes=memory, least_held=1, most_held=HELD)
    assert reading.unfinished is None
    assert min(p for _, p in solved.least_peaks) <= min(map(peak, solved.choices))
    proof = searched(problem, Search.FASTEST)
    assert min(map(seconds, proof.choices)) == pytest.approx(min(map(seconds, ample.choices)), rel=1e-9)
