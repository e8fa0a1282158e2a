"""The frontier of a stage: what is called exact is, what is called convex lies on no better point, and both say so."""

import itertools
from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore import questions
from alpa_explore.errors import OptionError
from alpa_explore.figures.decisions.frontier import FASTEST, TOO_LARGE, choice_names, frontier_figure, frontier_table
from alpa_explore.intra_op.problem.memory_limit import Item, MemoryLimit
from alpa_explore.intra_op.problem.solution import Status
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.solve_limited import solve_limited
from alpa_explore.pricing import tuning
from alpa_explore.pricing.stage_costs import Provenance
from alpa_explore.questions.frontier import known_frontier, whole_frontier
from tests.intra_op.stages import chain, on_mesh, whole

HELD, INVERSE_B = 2, 1 / 16
NOTHING = 0
"""No sum, and so no exact frontier."""


@pytest.fixture(scope="module")
def problem():
    return on_mesh(whole(chain(1)), (4,), INVERSE_B)[0]


def seconds(point):
    return point.totals.latency_at(INVERSE_B)


def size(point):
    return point.totals.weight_bytes + HELD * point.totals.activation_bytes


@pytest.mark.slow
def test_no_choice_within_a_limit_on_its_sum_is_faster_than_the_exact_frontier(problem):
    found, complete = whole_frontier(problem, 10**9, HELD, INVERSE_B, 24)
    assert complete
    assert {p.provenance for p in found} == {Provenance.EXACT}
    points = sorted(found, key=size)
    # The limit counts the sum alone here: what is held lives for ever, and there is no workspace.
    held = [
        Item(node=v, start=0, end=1, usage=node.weight_bytes + HELD * node.activation_bytes)
        for v, node in enumerate(problem.nodes)
    ]
    for place in range(0, len(points), 7):
        sums = MemoryLimit.of(held, size(points[place]))
        priced = problem.at(inverse_b=INVERSE_B, memory_price=0.0, microbatches_held=HELD)
        best = solve_limited(priced, sums)
        assert best.status is Status.OPTIMAL
        assert best.objective == pytest.approx(seconds(points[place]), rel=1e-9)


def test_the_convex_part_is_no_better_than_the_exact_frontier_and_shorter(problem):
    exact, _ = whole_frontier(problem, 10**9, HELD, INVERSE_B, 24)
    convex, complete = whole_frontier(problem, 10**9, HELD, INVERSE_B, 24, NOTHING)
    assert not complete
    assert {p.provenance for p in convex} <= {Provenance.CONVEX, Provenance.NEAR, Provenance.FASTEST}
    for p in convex:
        as_lean = min(seconds(e) for e in exact if size(e) <= size(p) * (1 + 1e-12))
        assert as_lean <= seconds(p) * (1 + 1e-9)
    assert 2 < len(convex) < len(exact)


def test_the_leanest_choice_of_a_large_stage_needs_no_proof_to_the_last_byte(problem, monkeypatch):
    exact, _ = whole_frontier(problem, 10**9, HELD, INVERSE_B, 24)
    least, gaps = min(map(size, exact)), []
    monkeypatch.setattr(questions.frontier, "EASY_ILP_VARIABLES", 0)
    monkeypatch.setattr(questions.frontier, "solve", lambda one, gap: gaps.append(gap) or solve(one, gap=gap))
    found, _ = whole_frontier(problem, int(least), HELD, INVERSE_B, 24, NOTHING)
    assert min(gaps) == tuning.LEAN_GAP
    assert min(map(size, found)) <= least * (1 + 2 * tuning.LEAN_GAP)


@pytest.fixture(scope="module")
def plan():
    # So little memory that the fastest choices of some ranges overflow: those get a frontier.
    cluster = ax.Cluster.parse("1x2:v100", memory_bytes=410 * 2**10)
    return ax.plan("mlp-tiny", cluster, num_microbatches=4, num_layers=2, scheduler="serial", cache=False)


def test_how_a_choice_was_found_goes_into_the_plan_file_and_comes_back(plan, tmp_path):
    every = [c.provenance for found in plan.costs.candidates.values() for c in found]
    assert Provenance.UNKNOWN not in every
    assert {Provenance.FASTEST, Provenance.CONVEX, Provenance.FITTING} & set(every)
    plan.save(tmp_path / "p")
    again = ax.load_plan(tmp_path / "p")
    assert [c.provenance for found in again.costs.candidates.values() for c in found] == every


def test_the_frontier_of_a_stage_of_a_plan_begins_with_the_fastest_and_holds_the_plan(plan):
    for stage in plan.stages:
        found = ax.frontier(plan, stage.index)
        assert all(a.seconds < b.seconds and a.held_bytes > b.held_bytes for a, b in itertools.pairwise(found.points))
        assert found.complete == all(p.provenance is Provenance.EXACT for p in found.points)
        fitting = min(p.seconds for p in found.points if p.fits)
        assert stage.latency_seconds <= fitting * (1 + 1e-9)
        assert found.points[0].seconds <= stage.latency_seconds * (1 + 1e-9)


def test_what_a_plan_from_a_file_knows_is_drawn_without_a_solve(plan, tmp_path):
    plan.save(tmp_path / "p")
    again = ax.load_plan(tmp_path / "p")
    known = known_frontier(again, 0)
    assert sum(p.chosen for p in known.points) == 1
    assert not known.complete
    key = again.key_of(again.stages[0])
    some = again.costs.candidates[key][0]
    lean = replace(some, paced_seconds=9.0, weight_bytes=0.1 * some.weight_bytes, solution_key="lean")
    twice = replace(again.costs, candidates={**again.costs.candidates, key: (some, lean, replace(lean))})
    points = known_frontier(replace(again, costs=twice), 0).points
    assert any(point.weight_bytes == lean.weight_bytes for point in points), "of equal choices one is left"
    with pytest.raises(OptionError, match="rebuild"):
        ax.frontier(again, 0)
    with pytest.raises(OptionError, match="at least one"):
        ax.frontier(plan, 0, held=0)
    with pytest.raises(OptionError, match="no such stage"):
        ax.frontier(plan, 99)


def test_the_figure_names_every_choice_and_draws_the_memory_of_a_device(plan):
    found = ax.frontier(plan, 0)
    figure = frontier_figure(plan, 0, frontier=found)
    names = choice_names(found)
    drawn = {t.name: t for t in figure.data if t.type == "scatter" and t.mode == "markers"}
    assert set(names) == set(drawn)
    assert names.count(FASTEST) <= 1
    assert sum(len(t.x) for t in drawn.values()) == len(found.points) == len(frontier_table(plan, 0, frontier=found))
    assert sum(len(t.x) for name, t in drawn.items() if name != TOO_LARGE) == sum(p.fits for p in found.points)
    assert len({t.marker.symbol for t in drawn.values()}) == len(drawn)
    assert any("one device" in note.text for note in figure.layout.annotations)
