"""The iteration time: T is what an iteration takes; in the paper's mode Eq. 2, and beside it the sends.

The example plan is in the paper's mode unless it says otherwise.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import alpa_explore as ax
from alpa_explore import units
from alpa_explore.inter_op.options import IDEAL, PipelineOptions
from alpa_explore.planner.replan import replan
from alpa_explore.plans.assemble import choose_stages
from alpa_explore.plans.iteration_time import IterationTime, iteration_time, iteration_time_of
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.iteration import iteration_phrase, sends_share
from alpa_explore.plans.report.summary import plan_report
from alpa_explore.plans.report.tables import plan_summary
from alpa_explore.schedules.catalog import build_schedule
from alpa_explore.schedules.simulator.simulate import simulate, without_sends
from alpa_explore.schedules.simulator.times import StageTimes
from alpa_explore.search.pipeline_query import PipelineQuery
from tests.plans.example import example_plan

OLD = Path(__file__).parent / "file/versions/0.1.0.plan.json"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return example_plan(num_layers=8, num_microbatches=64)


@pytest.mark.parametrize("b", [1, 2, 7, 64])
def test_two_equal_stages_wait_for_two_sends_every_second_microbatch(b: int) -> None:
    # Under 1F1B stage 0 runs its next forward pass after a backward pass, for which it waited. So a send to stage 1 and
    # one back delay every second microbatch: 2·s·⌈B / 2⌉.
    send = 0.25
    times = StageTimes(forward_seconds=1.0, backward_input_seconds=1.0, backward_weight_seconds=1.0)
    first = replace(times, send_forward_seconds=send)
    last = replace(times, send_backward_seconds=send)
    timeline = simulate(build_schedule("1f1b", 2, b), [first, last])
    free = without_sends(timeline)
    assert free.makespan_seconds == pytest.approx(3.0 * (b + 1))
    assert timeline.makespan_seconds - free.makespan_seconds == pytest.approx(2 * send * -(-b // 2))


def test_t_and_sends_and_unequal_tasks_add_up_to_the_simulated_seconds(plan: Plan) -> None:
    for schedule in ("1f1b", "gpipe", "eager-1f1b", "zb-h1", "interleaved-1f1b", "zb-v", "dualpipe-v", "dualpipe"):
        timeline = plan.timeline(schedule)
        time = iteration_time_of(plan, timeline)
        assert time.simulated_seconds == timeline.makespan_seconds
        assert time.planned_seconds + time.unequal_seconds + time.sends_seconds == pytest.approx(time.simulated_seconds)
        assert time.sends_seconds > 0
        assert time.counted_seconds == 0


@given(*[st.floats(0, 100)] * 4)
def test_the_parts_of_an_iteration_add_up_whatever_t_counts(t: float, counted: float, without: float, whole: float):
    time = IterationTime(
        schedule="1f1b",
        planned_seconds=t,
        counted_seconds=counted,
        without_sends_seconds=without,
        simulated_seconds=whole,
    )
    assert t - counted + time.unequal_seconds + time.sends_seconds == pytest.approx(whole, abs=1e-9)


def test_without_sends_equal_stages_take_t() -> None:
    plan = example_plan(num_microbatches=16)
    seconds = max(s.microbatch_seconds for s in plan.stages)
    equal = tuple(
        replace(s, microbatch_seconds=seconds, latency_seconds=seconds, iteration_seconds=0.0) for s in plan.stages
    )
    total = plan.terms.iteration_seconds([seconds] * len(equal))
    plan = replace(plan, stages=equal, details=None, predicted=replace(plan.predicted, iteration_seconds=total))
    time = iteration_time(plan)
    assert time is not None
    assert len(plan.stages) > 1
    assert time.unequal_seconds == pytest.approx(0.0, abs=1e-9)
    assert iteration_phrase(time).count(" + ") == 1, "T and the sends"


def test_it_is_simulated_once_for_each_plan(plan: Plan) -> None:
    assert iteration_time(plan) is iteration_time(plan)
    again = ax.replan(plan, num_microbatches=32)
    assert iteration_time(again) != iteration_time(plan)
    assert iteration_time(again) == iteration_time(replace(again))


def test_one_stage_sends_nothing() -> None:
    time = iteration_time(example_plan("1x1:a100"))
    assert time.sends_seconds == 0
    assert sends_share(time) == IDEAL
    assert sends_share(iteration_time(example_plan("1x1:a100", paper=False))) == ""


def test_sends_that_t_counts_are_not_counted_twice(plan: Plan) -> None:
    received = {(first, last): 1e8 * (first > 0) for first in range(8) for last in range(first, 8)}
    costs = replace(plan.costs, received_bytes=received)
    counted = ax.replan(
        replace(plan, costs=costs), pipeline=PipelineOptions(paper=True, communication=True, num_stages=4)
    )
    time = iteration_time(counted)
    assert time.counted_seconds > 0
    latencies = [s.latency_seconds - s.receive_seconds for s in counted.stages]
    assert time.planned_seconds - time.counted_seconds == pytest.approx(counted.terms.iteration_seconds(latencies))
    assert sends_share(time) == "Eq. 2 of the paper, sends counted"
    assert "of it sends between stages; simulated" in iteration_phrase(time)


def test_the_file_has_the_sends_and_one_of_an_earlier_version_opens_without(plan: Plan, tmp_path: Path) -> None:
    time = iteration_time(plan)
    assert time is not None
    plan.save(tmp_path / "a.plan.json")
    document = json.loads((tmp_path / "a.plan.json").read_text())
    assert document["predicted"]["sends_seconds"] == time.sends_seconds
    assert ax.load_plan(tmp_path / "a.plan.json").predicted == plan.predicted
    assert "sends_seconds" not in json.loads(OLD.read_text())["predicted"]
    old = ax.load_plan(OLD)
    assert iteration_time(old) is not None
    old.save(tmp_path / "b.plan.json")
    assert "sends_seconds" in json.loads((tmp_path / "b.plan.json").read_text())["predicted"]


def test_what_t_counts_of_sends_and_what_they_cost_are_named_as_two_things(plan: Plan) -> None:
    received = {(first, last): 1e8 * (first > 0) for first in range(8) for last in range(first, 8)}
    costs = replace(plan.costs, received_bytes=received)
    counted = ax.replan(
        replace(plan, costs=costs), pipeline=PipelineOptions(paper=True, communication=True, num_stages=4)
    )
    time = iteration_time(counted)
    in_t, added = units.seconds(time.counted_seconds), units.seconds(time.sends_seconds)
    assert in_t != added
    rows = {line.split("  ")[0]: " ".join(line.split()) for line in plan_report(counted).splitlines() if line}
    assert rows["sends"].startswith(f"sends {in_t} ")
    for row in ("sends", "iteration"):
        assert f"in T: {in_t} of sends between stages" in rows[row]
        assert f"simulated, they add {added} = " in rows[row]


@pytest.fixture(scope="module")
def timed() -> Plan:
    return example_plan(num_layers=8, num_microbatches=64, paper=False)


def parts_of(plan: Plan) -> dict[str, float]:
    time = iteration_time(plan)
    return dict(time.parts)


def test_t_is_the_end_of_the_timeline_and_its_parts_add_up_to_it(timed: Plan) -> None:
    options = [PipelineOptions(paper=False, schedule=name) for name in ("1f1b", "zb-h1", "interleaved-1f1b", "zb-v")]
    for each in (replan(timed, pipeline=asked) for asked in options):
        total = each.predicted.iteration_seconds
        assert total == each.timeline().makespan_seconds
        assert each.predicted.bubble_fraction == each.timeline().bubble_fraction
        assert sum(parts_of(each).values()) == pytest.approx(total, rel=1e-12)
        assert all(seconds >= 0 for seconds in parts_of(each).values())
        assert min(p.iteration_seconds for p in each.t_max_sweep if p.objective_seconds is not None) == total


def test_sends_are_the_part_of_t_by_which_it_is_longer_than_without_them(timed: Plan) -> None:
    two = replan(timed, pipeline=PipelineOptions(num_stages=2))
    without = without_sends(two.timeline()).makespan_seconds
    assert parts_of(two)["sends between stages"] == pytest.approx(two.predicted.iteration_seconds - without)
    time = iteration_time(two)
    assert sends_share(time).startswith("of which ")
    assert IDEAL not in plan_report(two)


def test_the_words_of_the_papers_mode_stand_beside_every_t(plan: Plan) -> None:
    assert sends_share(iteration_time(plan)).startswith(IDEAL)
    assert iteration_phrase(iteration_time(plan)).count(IDEAL) == 1
    assert plan_report(plan).count(IDEAL) >= 3  # the options, the sentence, the figure
    assert plan_summary(plan)["predicted"]["mode"] == IDEAL


def test_the_plan_is_the_fastest_of_the_partitions_that_the_search_met(timed: Plan) -> None:
    """Slow links: the sum that is minimised counts sends as if nothing ran beside them."""
    after = [0.0, *(float(layer.operator_cut_bytes[-1]) for layer in timed.layers)]
    received = {(first, last): after[first] + after[last + 1] for first in range(8) for last in range(first, 8)}
    timed, slower = replace(timed, costs=replace(timed.costs, received_bytes=received)), 0
    for factor in (0.2, 0.5, 1.0, 2.0, 5.0):
        link = timed.cluster.between_nodes
        cluster = timed.cluster.with_changes(between_nodes=replace(link, bandwidth=factor * link.bandwidth))
        each = replan(replace(timed, cluster=cluster))
        query = PipelineQuery(cluster=cluster, options=each.options.pipeline, num_microbatches=64)
        best = query.best(each.costs)
        for stages in (best.stages, *best.near):
            alone = replace(best, stages=stages, near=())
            other = choose_stages(each, alone)
            assert each.predicted.iteration_seconds <= other.predicted.iteration_seconds * (1 + 1e-12)
            slower += stages == best.stages and other.predicted.iteration_seconds > each.predicted.iteration_seconds
    assert slower, "the objective alone would have chosen another plan somewhere"


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "interleaved-1f1b"])
def test_of_many_microbatches_a_few_are_simulated(timed: Plan, schedule: str) -> None:
    many = replan(timed, num_microbatches=32_768, pipeline=PipelineOptions(schedule=schedule, num_stages=4))
    assert many.predicted.iteration_seconds == pytest.approx(many.timeline().makespan_seconds, rel=1e-5)
    assert many.predicted.bubble_fraction == pytest.approx(many.timeline().bubble_fraction, abs=1e-5)
    assert sum(parts_of(many).values()) == pytest.approx(many.predicted.iteration_seconds, rel=1e-9)


def test_real_software_waits_for_its_sends() -> None:
    """A stage waits for each send that it receives or sends, forward and back: T of equal stages is a closed form."""
    made = example_plan("2x4:a100", num_layers=8, num_microbatches=16, paper=False)
    software = replace(made.cluster.software, send_seconds=1e-3, send_share=0.5)
    made = replan(
        replace(made, cluster=made.cluster.with_changes(software=software)), pipeline=PipelineOptions(num_stages=2)
    )
    timeline = made.timeline()
    (sent, _), (_, back) = ((t.send_wait_seconds) for t in timeline.times)
    assert sent == back > 1e-3
    free = without_sends(timeline)
    assert [t.microbatch_seconds - 2 * sent for t in timeline.times] == pytest.approx(
        [t.microbatch_seconds for t in free.times]
    )
    assert timeline.makespan_seconds - free.makespan_seconds > 15 * 2 * sent
    assert made.predicted.iteration_seconds == timeline.makespan_seconds


def test_a_file_of_a_version_before_has_t_of_eq_2_and_says_so() -> None:
    old = ax.load_plan(OLD)
    assert old.options.pipeline.mode == IDEAL
    latencies = [s.latency_seconds for s in old.stages]
    assert old.predicted.iteration_seconds == pytest.approx(old.terms.iteration_seconds(latencies))
