"""Another delta: the plan is that of the whole planner, where only some stages are priced, too."""

import math
import threading
from dataclasses import replace
from itertools import pairwise

import pytest

import alpa_explore as ax
import alpa_explore.planner.replan as replanning
from alpa_explore.errors import CancelledError, LayeringError, OptionError
from alpa_explore.execution.executors import Executor
from alpa_explore.intra_op.composition.within_memory import MemoryLimitedChoice
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.planner.resources import Running
from alpa_explore.plans.rebuild import layered_graphs
from alpa_explore.pricing import tasks
from alpa_explore.pricing.price_book import PriceBook
from alpa_explore.pricing.tuning import TOLERANCE
from alpa_explore.search import stage_pricing
from alpa_explore.search.bounds.lower_bounds import LowerBounds
from alpa_explore.search.library import SolveContext
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.search.profile_stages import a_pipeline_fits, profile_stages, profile_wanted, unpriced_stages

B = 8


def cluster(text="1x4:v100", memory_bytes=None, overlap=0.0):
    made = ax.Cluster.parse(text, **({} if memory_bytes is None else {"memory_bytes": memory_bytes}))
    return replace(made, device=replace(made.device, collective_overlap=overlap, gradient_overlap=overlap))


def planned(graph, where, layers, **options):
    return ax.plan(graph, where, num_microbatches=B, num_layers=layers, scheduler="serial", **options)


@pytest.fixture(scope="module")
def gpt():
    return microbatch_graph("gpt-tiny", B)


def test_a_choice_never_holds_less_than_is_said_where_memory_is_short(gpt):
    where = cluster(memory_bytes=2_000_000)
    graph = replace(gpt, rematerialization=True)
    plan = planned(graph, where, 4)
    (layered,) = layered_graphs(plan, graph)
    least = LowerBounds(layered, [where.device])
    useful = 0
    for cell, candidates in plan.costs.candidates.items():
        most = least.most_held(*cell[:2], plan.costs.submeshes[cell[2]])
        for c in candidates:
            fits = [held for held in range(1, 200) if c.peak_bytes(held) <= where.device.memory_bytes]
            assert max(fits, default=-math.inf) <= max(most, -1.0) or not fits
        useful += most < 100
    assert useful > 5


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("rematerialization", "memory_bytes"), [(False, None), (True, None), (False, 2_900_000), (True, 2_100_000)]
)
def test_another_delta_leads_to_the_plan_that_the_whole_planner_makes(gpt, memory_bytes, rematerialization):
    graph, where = replace(gpt, rematerialization=rematerialization), cluster(memory_bytes=memory_bytes)
    before = planned(graph, where, 4)
    assert before.costs.complete
    found, whole = ax.replan(before, delta=0.2), planned(graph, where, 4, delta=0.2)
    assert found.layers == whole.layers != before.layers
    assert found.options.delta == 0.2
    if memory_bytes is None:  # where it is short the whole planner may run
        assert not found.costs.complete
        assert 0 < len(found.costs.candidates) < len(whole.costs.candidates)
    assert math.isclose(found.predicted.iteration_seconds, whole.predicted.iteration_seconds, rel_tol=1e-9)
    assert all(s.peak_bytes <= where.device.memory_bytes for s in found.stages)
    for one, other in pairwise((before, found, whole)):
        assert one.cluster == other.cluster


def test_what_is_priced_on_demand_is_a_plan_like_any_other(gpt, tmp_path):
    found = ax.replan(planned(gpt, cluster(), 4), delta=0.2)
    for stage in found.stages:
        assert len(stage.operators) > 10
    path = tmp_path / "found.plan.json"
    found.save(path)
    read = ax.load_plan(path)
    assert not read.costs.complete
    assert read.predicted == found.predicted
    assert any("with another B" in w for w in found.warnings)
    # Beside another B it is the best of what was priced.
    assert ax.replan(found, num_microbatches=4).predicted.iteration_seconds > 0


def test_delta_moves_on_from_the_costs_that_are_complete(gpt):
    before = planned(gpt, cluster(), 4)
    there = ax.replan(before, delta=0.2)
    assert there.basis is before
    again = ax.replan(there, delta=0.21)
    assert again.basis is before
    assert again.predicted == there.predicted
    back = ax.replan(there, delta=0.5)
    assert back.costs.complete
    assert back.stages == before.stages


@pytest.mark.slow
def test_delta_of_a_plan_from_a_file_is_found_with_the_model_captured_again(gpt, tmp_path):
    before = planned(gpt, cluster(), 4)
    before.save(tmp_path / "a.plan.json")
    read = ax.load_plan(tmp_path / "a.plan.json")
    assert ax.replan(read, delta=0.2).predicted == ax.replan(before, delta=0.2).predicted


@pytest.mark.slow
def test_the_other_options_count_too(gpt):
    before = planned(gpt, cluster(), 4)
    options = ax.PipelineOptions(schedule="gpipe", communication=True)
    found = ax.replan(before, delta=0.2, num_microbatches=16, pipeline=options)
    whole = ax.plan(gpt, cluster(), num_microbatches=16, num_layers=4, delta=0.2, pipeline=options, scheduler="serial")
    assert found.options == whole.options
    assert math.isclose(found.predicted.iteration_seconds, whole.predicted.iteration_seconds, rel_tol=2 * TOLERANCE)


@pytest.mark.slow
def test_what_is_constrained_of_specs_still_holds(gpt):
    two = ax.PipelineOptions(num_stages=2)
    free = planned(gpt, cluster(), 4, pipeline=two)
    chosen = next(o for s in free.stages for o in s.operators if "addmm" in o.op and "S" in o.output)
    before = planned(gpt, cluster(), 4, forbid={chosen.name: chosen.output}, pipeline=two)
    found = ax.replan(before, delta=0.2)
    assert found.options.spec_constraints == before.options.spec_constraints
    outputs = {o.name: o.output for s in found.stages for o in s.operators}
    assert outputs[chosen.name] != chosen.output
    whole = planned(gpt, cluster(), 4, delta=0.2, forbid={chosen.name: chosen.output}, pipeline=two)
    assert math.isclose(found.predicted.iteration_seconds, whole.predicted.iteration_seconds, rel_tol=2 * TOLERANCE)


@pytest.mark.slow
def test_versions_of_recomputation_are_priced_on_demand_and_another_solver_asks_the_whole_planner(gpt):
    where = cluster(memory_bytes=2_300_000)
    by_choice = planned(gpt, where, 4, rematerialization="auto")
    found, whole = ax.replan(by_choice, delta=0.2), planned(gpt, where, 4, delta=0.2, rematerialization="auto")
    assert len(found.costs.versions) > 1
    assert found.layers == whole.layers != by_choice.layers
    assert math.isclose(found.predicted.iteration_seconds, whole.predicted.iteration_seconds, rel_tol=2 * TOLERANCE)
    by_highs = planned(gpt, cluster("1x2:v100"), 3, solver="highs")
    assert ax.replan(by_highs, delta=1.0).costs.complete


def test_the_whole_planner_is_asked_with_the_scheduler_and_the_cache_that_replan_was_given(gpt, monkeypatch):
    before = planned(gpt, cluster(), 4)
    before = replace(before, options=replace(before.options, solver="highs"))
    asked = {}
    monkeypatch.setattr(replanning, "planned", lambda asking, how: asked.update(how=how, delta=asking.delta) or before)
    how = {"scheduler": object(), "cache": False, "progress": print, "cancel": threading.Event()}
    ax.replan(before, delta=0.2, **how)
    assert asked["delta"] == 0.2
    assert asked["how"] == Running(**how)


@pytest.mark.slow
def test_errors_say_what_stands_in_the_way(gpt):
    before = planned(gpt, cluster(), 4)
    with pytest.raises(LayeringError, match="smallest delta that works"):
        ax.replan(before, delta=0.01)
    with pytest.raises(OptionError, match="0 or more"):
        ax.replan(before, delta=-1.0)
    with pytest.raises(OptionError, match="Replan for another B afterwards"):
        ax.replan(before, delta=0.2, num_microbatches="auto")
    ended = threading.Event()
    ended.set()
    with pytest.raises(CancelledError):
        ax.replan(before, delta=0.2, cancel=ended)
    names = [o.name for o in gpt.forward_operators]
    by_hand = planned(gpt, cluster(), None, boundaries=[names[30], names[60]])
    with pytest.raises(OptionError, match="boundaries set by hand"):
        ax.replan(by_hand, delta=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{"schedule": "interleaved-1f1b", "stages_per_submesh": 2}, {"schedule": "auto"}])
def test_schedules_that_compete_or_take_turns_are_those_of_the_whole_planner(gpt, asked):
    """Fault of 0.1.0: the stages that a submesh runs in turn were not priced, and T was then not that of the simulated
    iteration: 1.2 % too short for GPT-39B on 8x8:h100."""
    where = replace(cluster("1x4:v100"), device=ax.Cluster.parse("1x4:h100").device)
    options = ax.PipelineOptions(num_stages=2, **asked)
    before = planned(gpt, where, 4, pipeline=options)
    found = ax.replan(before, delta=0.2, pipeline=options)
    whole = planned(gpt, where, 4, delta=0.2, pipeline=options)
    assert found.layers == whole.layers != before.layers
    assert found.predicted == whole.predicted
    assert found.options == whole.options
    assert found.schedules == whole.schedules


def on_demand(graph, memory_bytes, plan):
    """The arguments of a search for stages of a plan, on devices with so much memory."""
    (layered,) = layered_graphs(plan, graph)
    return layered, PipelineQuery(
        cluster=cluster(memory_bytes=memory_bytes), options=ax.PipelineOptions(), num_microbatches=B
    )


def test_a_stage_that_waits_may_hold_more_than_another_with_the_same_problem_at_a_later_place(gpt):
    """Fault of 0.1.0: until it was priced it was said to fit only where the later one may stand."""
    layered, query = on_demand(gpt, None, planned(gpt, cluster(), 4, delta=2.0))
    solving = SolveContext(solver="auto", executor=Executor("serial"), store=None)
    bounds = unpriced_stages((layered,), query, solving).costs().bounds
    assert set(bounds[1, 1, 1]) >= {1, 2, 3}
    assert bounds[1, 1, 1][1] == bounds[2, 2, 1][1], "the same problem: else the test shows nothing"


@pytest.mark.slow
def test_a_stage_gets_its_answer_from_another_with_the_same_problem(gpt):
    plan = planned(gpt, cluster(), 4, delta=2.0)
    checked, one, other = 0, (1, 1, 1), (2, 2, 1)
    for memory_bytes in range(900_000, 1_000_000, 24_000):
        layered, query = on_demand(gpt, memory_bytes, plan)
        solving = SolveContext(solver="auto", executor=Executor("serial"), store=None)
        pricing = unpriced_stages((layered,), query, solving)
        for held in range(1, 5):
            costs = pricing.costs()
            while held in costs.bounds.get(one, ()):
                pricing.price([(one, held)])
                costs = pricing.costs()
            assert held not in costs.bounds.get(other, ())
            assert [c.solution_key for c in costs.candidates.get(one, ())] == [
                c.solution_key for c in costs.candidates.get(other, ())
            ]
            checked += one in costs.candidates
    assert checked >= 3


def test_no_solver_is_asked_about_a_large_problem_once_the_pipeline_is_within_the_tolerance(monkeypatch):
    """Fault of 0.1.0: of Llama-3-70B on 8x8:h100 a solver took 21 s for a stage, though the best pipeline was proven to
    within 0.004 %."""
    mlp, one = microbatch_graph("mlp-tiny", B), ax.PipelineOptions(num_stages=1)
    plan = planned(mlp, cluster(), 2, delta=2.0, pipeline=one)
    layered, query = on_demand(mlp, int(0.7 * plan.stages[0].peak_bytes), plan)
    query, asked, bounded = replace(query, options=one), [], tasks.fastest_within_memory
    solving = SolveContext(solver="auto", executor=Executor("serial"), store=None)
    monkeypatch.setattr(
        tasks,
        "fastest_within_memory",
        lambda *args, **options: {n: replace(r, bound=1e-9) for n, r in bounded(*args, **options).items()},
    )
    monkeypatch.setattr(tasks, "solved_within_memory", lambda *_: asked.append(True) or PriceBook())
    for tolerance, easy, solves in ((10.0, 0, False), (10.0, 10**9, True), (0.0, 0, True)):
        monkeypatch.setattr(stage_pricing, "TOLERANCE", tolerance)
        monkeypatch.setattr(stage_pricing, "EASY_ILP_VARIABLES", easy)
        asked.clear()
        assert query.best(profile_stages((layered,), query, solving).costs).feasible
        assert bool(asked) is solves


def test_where_composition_finds_no_choice_that_fits_a_solver_is_asked_and_else_a_warning_says_so(monkeypatch):
    """Fault of 0.1.0: such a stage was dropped without a word."""
    mlp, one = microbatch_graph("mlp-tiny", B), ax.PipelineOptions(num_stages=1)
    plan = planned(mlp, cluster(), 2, delta=2.0, pipeline=one)
    layered, query = on_demand(mlp, int(0.7 * plan.stages[0].peak_bytes), plan)
    query = replace(query, options=one)
    monkeypatch.setattr(
        tasks,
        "fastest_within_memory",
        lambda *_, counts, **__: {n: MemoryLimitedChoice(best=None, bound=1e-9) for n in counts},
    )
    solving = SolveContext(solver="auto", executor=Executor("serial"), store=None)
    assert profile_wanted(unpriced_stages((layered,), query, solving))[1] is None, "the whole planner is to be asked"
    assert a_pipeline_fits(layered, query) is None, "neither is known"
    assert query.best(profile_stages((layered,), query, solving).costs).feasible
    monkeypatch.setattr(tasks, "solved_within_memory", lambda *_: PriceBook())
    (warning,) = profile_stages((layered,), query, solving).warnings
    assert "The best plan is not proven, because memory is short" in warning
