"""The iteration time: T, and beside it the sends between stages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import alpa_explore as ax
from alpa_explore import units
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.plans.iteration_time import IterationTime, iteration_time, iteration_time_of
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.iteration import iteration_phrase, sends_share
from alpa_explore.plans.report.summary import plan_report
from alpa_explore.schedules.catalog import build_schedule
from alpa_explore.schedules.simulator.simulate import simulate, without_sends
from alpa_explore.schedules.simulator.times import StageTimes
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
    assert time is not None
    assert time.sends_seconds == 0
    assert sends_share(time) == ""


def test_sends_that_t_counts_are_not_counted_twice(plan: Plan) -> None:
    received = {(first, last): 1e8 * (first > 0) for first in range(8) for last in range(first, 8)}
    costs = replace(plan.costs, received_bytes=received)
    counted = ax.replan(replace(plan, costs=costs), pipeline=PipelineOptions(communication=True, num_stages=4))
    time = iteration_time(counted)
    assert time is not None
    assert time.counted_seconds > 0
    latencies = [s.latency_seconds - s.receive_seconds for s in counted.stages]
    assert time.planned_seconds - time.counted_seconds == pytest.approx(counted.terms.iteration_seconds(latencies))
    assert sends_share(time) == "sends counted"
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
    counted = ax.replan(replace(plan, costs=costs), pipeline=PipelineOptions(communication=True, num_stages=4))
    time = iteration_time(counted)
    assert time is not None
    in_t, added = units.seconds(time.counted_seconds), units.seconds(time.sends_seconds)
    assert in_t != added
    rows = {line.split("  ")[0]: " ".join(line.split()) for line in plan_report(counted).splitlines() if line}
    assert rows["sends"].startswith(f"sends {in_t} ")
    for row in ("sends", "iteration"):
        assert f"in T: {in_t} of sends between stages" in rows[row]
        assert f"simulated, they add {added} = " in rows[row]
