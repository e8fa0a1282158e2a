"""The simulator against closed forms, a second simulator, and the invariants of a timeline."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.errors import ScheduleError
from alpa_explore.schedules.catalog import DUAL_PIPE, INTERLEAVED, SCHEDULES, V_SHAPES, build_schedule
from alpa_explore.schedules.closed_form import closed_form
from alpa_explore.schedules.simulator.memory import memory_curve
from alpa_explore.schedules.simulator.simulate import simulate
from alpa_explore.schedules.simulator.times import Links, StageTimes, links_between
from alpa_explore.schedules.task import Action, Schedule, Task
from tests.schedules.reference import reference_times

SECONDS = st.integers(0, 8).map(lambda n: n / 4)
"""Sums of these are exact."""


def equal_times(count: int, forward=1.0, of_input=1.0, of_weight=1.0, send=0.0, **more: float) -> list[StageTimes]:
    stage_times = StageTimes(
        forward_seconds=forward,
        backward_input_seconds=of_input,
        backward_weight_seconds=of_weight,
        send_forward_seconds=send,
        send_backward_seconds=send,
        **more,
    )
    return [stage_times] * count


def legal_microbatches(name: str, submeshes: int, about: int) -> int:
    """A number of microbatches that a schedule exists for, which grows with `about`."""
    if name == INTERLEAVED:
        return about * submeshes
    return {"dualpipe-v": 2 * submeshes + about - 1, DUAL_PIPE: 2 * (submeshes + about - 1)}.get(name, about)


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[Schedule, list[StageTimes]]:
    """Any schedule of the catalogue, with stages of any times."""
    name = draw(st.sampled_from(SCHEDULES))
    submeshes = draw(st.integers(1, 5)) if name != DUAL_PIPE else 2 * draw(st.integers(1, 3))
    turns = draw(st.integers(1, 3)) if name == INTERLEAVED else None
    microbatches = legal_microbatches(name, submeshes, draw(st.integers(1, 4)))
    schedule = build_schedule(name, submeshes, microbatches, stages_per_submesh=turns)
    times = [
        StageTimes(
            forward_seconds=draw(SECONDS),
            backward_input_seconds=draw(SECONDS),
            backward_weight_seconds=draw(SECONDS),
            send_forward_seconds=draw(SECONDS),
            send_backward_seconds=draw(SECONDS),
            update_seconds=draw(SECONDS),
            activation_bytes=draw(SECONDS),
        )
        for _ in range(schedule.num_stages)
    ]
    return schedule, times


@given(pipelines())
def test_every_task_starts_and_ends_as_in_the_second_simulator(pipeline) -> None:
    schedule, times = pipeline
    timeline = simulate(schedule, times)
    expected = reference_times(schedule, times)
    simulated = {
        timeline.schedule.task(i): (timeline.start_seconds[i], timeline.end_seconds[i])
        for i in range(len(timeline.start_seconds))
        if timeline.schedule.actions[i] != Action.UPDATE
    }
    assert simulated == expected


@given(pipelines())
def test_the_critical_path_has_no_gap_and_takes_the_whole_makespan(pipeline) -> None:
    timeline = simulate(*pipeline)
    path = timeline.critical_path()
    spans = [
        (timeline.send_start_seconds[s.task], timeline.send_end_seconds[s.task])
        if s.send
        else (timeline.start_seconds[s.task], timeline.end_seconds[s.task])
        for s in path
    ]
    assert spans[0][0] == 0.0
    assert spans[-1][1] == timeline.makespan_seconds
    assert all(end == start for (_, end), (start, _) in pairwise(spans))


@given(pipelines())
def test_all_activations_are_freed_and_none_twice(pipeline) -> None:
    timeline = simulate(*pipeline)
    for p in range(timeline.schedule.num_submeshes):
        curve = memory_curve(timeline, p)
        assert curve.held[-1] == curve.activation_bytes[-1] == 0.0
        assert curve.held.min() >= 0.0
        assert (np.diff(curve.seconds) >= 0.0).all()


THIRDS = ("zb-h1", *V_SHAPES, DUAL_PIPE)
"""Their formulas hold where forward, backward to inputs and backward to weights are equally long."""


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("submeshes", [1, 2, 3, 4, 8])
def test_the_makespan_is_the_closed_form_where_that_is_exact(name, submeshes) -> None:
    if name == DUAL_PIPE and submeshes % 2:
        return
    about = [rounds * (1 if name == INTERLEAVED else submeshes) + more for rounds in (1, 2, 5) for more in (0, 1)]
    for microbatches in {legal_microbatches(name, submeshes, count) for count in about}:
        schedule = build_schedule(name, submeshes, microbatches)
        updates = 0.5 * (schedule.num_stages // submeshes - 1)
        for parts in ((1.0, 1.0, 1.0), (0.25, 0.5, 0.25), (3.0, 0.0, 0.0)):
            times = equal_times(schedule.num_stages, *parts, update_seconds=0.5)
            form = closed_form(schedule, times)
            assert form.exact == (name not in THIRDS or parts == (1.0, 1.0, 1.0))
            if form.exact:
                assert simulate(schedule, times).makespan_seconds == pytest.approx(form.seconds + updates, rel=1e-12)


@pytest.mark.parametrize(
    ("submeshes", "microbatches", "turns"), [(2, 4, 2), (4, 8, 2), (4, 16, 3), (3, 9, 2), (2, 8, 4)]
)
@pytest.mark.parametrize("send", [0.1, 0.5])
def test_an_interleaved_pipeline_of_equal_stages_waits_for_the_sends_of_one_microbatch_there_and_back(
    submeshes, microbatches, turns, send
) -> None:
    """The forwards of its longer warm-up run while the others are sent."""
    schedule = build_schedule(INTERLEAVED, submeshes, microbatches, stages_per_submesh=turns)
    times = equal_times(schedule.num_stages, 1.0, 1.0, 0.5)
    sent = [replace(t, send_forward_seconds=send, send_backward_seconds=send) for t in times]
    expected = closed_form(schedule, times).seconds + 2 * (schedule.num_stages - 1) * send
    assert simulate(schedule, sent).makespan_seconds == pytest.approx(expected, rel=1e-12)


@given(st.integers(1, 6), st.integers(1, 12), st.data())
def test_gpipe_with_any_times_and_sends_equals_its_closed_form(stages, microbatches, data) -> None:
    times = [
        StageTimes(
            forward_seconds=data.draw(SECONDS),
            backward_input_seconds=data.draw(SECONDS),
            backward_weight_seconds=0.25,
            send_forward_seconds=data.draw(SECONDS),
            send_backward_seconds=data.draw(SECONDS),
        )
        for _ in range(stages)
    ]
    schedule = build_schedule("gpipe", stages, microbatches)
    form = closed_form(schedule, times)
    assert form.exact
    assert simulate(schedule, times).makespan_seconds == form.seconds


@pytest.mark.parametrize(
    ("name", "send", "makespan", "held"),
    [
        ("1f1b", 0.0, 33, [4, 3, 2, 1]),
        ("gpipe", 0.0, 33, [8, 8, 8, 8]),
        ("eager-1f1b", 0.0, 33, [7, 5, 3, 1]),
        ("1f1b", 0.5, 41, [4, 3, 2, 1]),
        ("gpipe", 0.5, 36, [8, 8, 8, 8]),
        ("eager-1f1b", 0.5, 36, [7, 5, 3, 1]),
    ],
)
def test_four_stages_and_eight_microbatches_give_the_figures_computed_by_hand(name, send, makespan, held) -> None:
    timeline = simulate(build_schedule(name, 4, 8), equal_times(4, 1.0, 1.0, 1.0, send))
    assert timeline.makespan_seconds == makespan
    assert [memory_curve(timeline, p).held.max() for p in range(4)] == held


@pytest.mark.parametrize("name", ["zb-v", "v-half", "v-min"])
@pytest.mark.parametrize("submeshes", [1, 2, 4, 5, 6, 9])
@pytest.mark.parametrize("microbatches", [1, 2, 3, 20])
def test_no_submesh_of_a_v_shape_holds_more_than_is_published(name, submeshes, microbatches) -> None:
    most = {"zb-v": submeshes, "v-half": (submeshes + 2) // 2, "v-min": (submeshes + 4) // 3}[name]
    timeline = simulate(build_schedule(name, submeshes, microbatches), equal_times(2 * submeshes))
    held = max(memory_curve(timeline, p).held.max() for p in range(submeshes))
    assert held <= 2 * min(most, microbatches)
    assert held == 2 * most or microbatches <= most


def test_dual_pipe_holds_two_copies_of_the_weights_and_runs_half_of_the_microbatches_in_each() -> None:
    schedule = build_schedule("dualpipe", 4, 12)
    assert schedule.submesh_of_stage == (0, 1, 2, 3, 3, 2, 1, 0)
    assert {t.microbatch for t in schedule.order(0) if t.stage == 0} == set(range(6))
    assert {t.microbatch for t in schedule.order(0) if t.stage == 7} == set(range(6, 12))
    timeline = simulate(schedule, equal_times(8, weight_bytes=10.0, activation_bytes=1.0))
    assert timeline.makespan_seconds == 12 * 3 + 1
    assert [memory_curve(timeline, p).weight_bytes for p in range(4)] == [20.0] * 4
    assert [memory_curve(timeline, p).held.max() for p in range(4)] == [5] * 4  # P + 1 (DeepSeek-V3 report, table 2)


def test_a_send_occupies_the_link_and_not_the_submesh() -> None:
    times = equal_times(2, 1.0, 1.0, 0.0, send=5.0)
    timeline = simulate(build_schedule("gpipe", 2, 3), times)
    assert timeline.start_seconds[:3].tolist() == [0, 1, 2]
    assert timeline.send_start_seconds[:3].tolist() == [1, 6, 11]


def test_sends_that_share_a_link_wait_for_each_other() -> None:
    times, schedule = equal_times(3, 1.0, 1.0, 0.0, send=2.0), build_schedule("gpipe", 3, 2)
    shared = Links(names=("all",), forward=(0, 0, -1), backward=(-1, 0, 0))
    timeline = simulate(schedule, times, shared)
    spans = zip(timeline.send_start_seconds, timeline.send_end_seconds, strict=True)
    sends = sorted(s for s in spans if not math.isnan(s[0]))
    assert len(sends) == 8
    assert all(start >= end for (_, end), (start, _) in pairwise(sends))
    assert timeline.makespan_seconds > simulate(schedule, times, links_between((0, 1, 2))).makespan_seconds


def test_bubbles_add_up_to_the_idle_time() -> None:
    timeline = simulate(build_schedule("1f1b", 4, 8), equal_times(4, update_seconds=1.0))
    assert timeline.makespan_seconds == 34
    assert timeline.busy_seconds.tolist() == [25] * 4
    assert timeline.bubble_fraction == pytest.approx(9 / 34)


def test_warm_up_ends_with_the_first_backward_and_cool_down_starts_after_the_last_forward() -> None:
    timeline = simulate(build_schedule("1f1b", 2, 3), equal_times(2, 1.0, 1.0, 0.0))
    # Stage 0: F0 F1 – B0 F2 B1 – B2; stage 1: – F0 B0 F1 B1 F2 B2.
    assert timeline.phases(0) == (3, 5)
    assert timeline.phases(1) == (2, 6)


def test_times_for_another_number_of_stages_are_an_error() -> None:
    with pytest.raises(ScheduleError, match="3 stages in the schedule, times of 2"):
        simulate(build_schedule("1f1b", 3, 4), equal_times(2))


def test_a_task_is_written_as_in_torch() -> None:
    assert str(Task(Action.BACKWARD_INPUT, 12, 3)) == "12I3"
