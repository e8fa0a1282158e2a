"""Schedules that cannot run are errors that name the tasks."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.errors import OptionError, ScheduleError, UnknownNameError
from alpa_explore.schedules.catalog import DUAL_PIPE, INTERLEAVED, SCHEDULES, build_schedule
from alpa_explore.schedules.csv_file import parse_csv
from alpa_explore.schedules.simulator.simulate import check
from alpa_explore.schedules.task import schedule_of
from tests.schedules.reference import reference_times
from tests.schedules.test_simulate import equal_times, legal_microbatches


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("submeshes", [1, 2, 5])
@pytest.mark.parametrize("turns", [1, 2, 7])
def test_every_schedule_of_the_catalogue_can_run(name, submeshes, turns) -> None:
    more = {"stages_per_submesh": turns} if name == INTERLEAVED else {}
    submeshes += name == DUAL_PIPE and submeshes % 2
    for rounds in (1, 4):
        about = rounds if name == INTERLEAVED else rounds * submeshes
        check(build_schedule(name, submeshes, legal_microbatches(name, submeshes, about), **more))
    check(build_schedule(name, submeshes, legal_microbatches(name, submeshes, 1)))


@given(st.data())
def test_an_order_deadlocks_exactly_when_its_dependencies_form_a_cycle(data) -> None:
    good = build_schedule(data.draw(st.sampled_from(["1f1b", "zb-h1"])), 3, 3)
    orders = [list(good.order(p)) for p in range(3)]
    row = data.draw(st.integers(0, 2))
    a, b = (data.draw(st.integers(0, len(orders[row]) - 1)) for _ in range(2))
    orders[row][a], orders[row][b] = orders[row][b], orders[row][a]
    schedule = schedule_of("swapped", orders, 3)
    place = {task: i for order in orders for i, task in enumerate(order)}
    is_ordered = all(
        place[t] > place[need]
        for t in place
        for need in place
        if t.stage == need.stage and t.microbatch == need.microbatch and _letter(need) < _letter(t)
    )
    try:
        reference_times(schedule, equal_times(3))
        runs = is_ordered
    except RecursionError:
        runs = False
    if runs:
        check(schedule)
    else:
        with pytest.raises(ScheduleError, match="The schedule deadlocks"):
            check(schedule)


def _letter(task) -> int:
    """F before B or I before W."""
    return {0: 0, 1: 1, 2: 1, 3: 2}[int(task.action)]


def test_a_deadlock_names_the_waiting_tasks_and_what_they_wait_for() -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_csv("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n")
    assert caught.value.found == "submesh 0 waits at 0B0 for 1B0; submesh 1 waits at 1F1 for 0F1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0,0F0,0B0", "2 of microbatch 0 on stage 0"),
        ("0F0,0F1,0B0", "0 of microbatch 1 on stage 0"),
        ("0F0,0I0", "does not list all tasks|0I0 without 0W0"),
        ("0F0,0I0,0B0,0W0", "2 of microbatch 0 on stage 0"),
        ("0F0,0F1,0I0,0I1,0W0", "0I1 without 0W1"),
        ("0F0,0B0,1F0\n1B0", "1F0 on submesh 0, other tasks of stage 1 on submesh 1"),
        ("0F0,0B0,2F0,2B0", "4 tasks for 3 stages|0 of microbatch 0 on stage 1"),
        ("0B0,0F0", "submesh 0 waits at 0B0 for 0F0"),
        ("0F0,0W0,0I0", "0W0 for 0I0"),
        ("0F0,0X0", "'0X0' in row 1, column 2"),
        ("", "contains no task|no task"),
        ("0F0,0F999999999,0B0", "3 tasks for 1 stages and 1000000000 microbatches"),
    ],
)
def test_a_table_that_is_not_a_schedule_is_an_error_with_the_cell(text, message) -> None:
    with pytest.raises(ScheduleError, match=message):
        parse_csv(text)


def test_options_without_a_schedule_are_errors() -> None:
    with pytest.raises(ScheduleError, match=re.escape("B = 4 or 8")):
        build_schedule(INTERLEAVED, 4, 6)
    with pytest.raises(ScheduleError, match=re.escape("B = 4, or")):
        build_schedule(INTERLEAVED, 4, 3)
    with pytest.raises(ScheduleError, match="0 stages a submesh"):
        build_schedule(INTERLEAVED, 4, 8, stages_per_submesh=0)
    with pytest.raises(ScheduleError, match="Choose B = 8 or more"):
        build_schedule("dualpipe-v", 4, 7)
    with pytest.raises(ScheduleError, match="Choose B = 10 or 12"):
        build_schedule("dualpipe", 4, 11)
    with pytest.raises(ScheduleError, match="Choose B = 8,"):
        build_schedule("dualpipe", 4, 6)
    with pytest.raises(ScheduleError, match="Choose 4 or 6 submeshes"):
        build_schedule("dualpipe", 5, 20)
    with pytest.raises(OptionError, match="zb-v runs two stages"):
        build_schedule("zb-v", 4, 8, stages_per_submesh=3)
    with pytest.raises(OptionError, match="1f1b runs one stage"):
        build_schedule("1f1b", 4, 8, stages_per_submesh=2)
    with pytest.raises(OptionError, match="B = 0"):
        build_schedule("1f1b", 4, 0)
    with pytest.raises(UnknownNameError, match="'gpipe'"):
        build_schedule("gpip", 4, 8)


def test_an_empty_schedule_is_an_error() -> None:
    with pytest.raises(ScheduleError, match="no task"):
        check(schedule_of("none", [[]], 0))
