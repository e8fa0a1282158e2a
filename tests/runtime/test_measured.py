"""Measured times of tasks, joined from what the ranks have written."""

from alpa_explore.runtime.measured import of_task
from alpa_explore.schedules.task import Action, Task


def times(*seconds):
    """What a rank writes of a task, with a tenth of its time in collectives and none in receives."""
    return {
        "seconds": list(seconds),
        "collective_seconds": [one / 10 for one in seconds],
        "receive_seconds": [0.0 for _ in seconds],
    }


def test_an_update_in_parts_takes_the_sum_of_its_parts_in_every_step():
    written = {"0F0": times(9.0, 9.0), "0S0": times(1.0, 2.0), "0U0": times(10.0, 20.0), "0R0": times(100.0, 200.0)}
    assert of_task(written, Task(Action.UPDATE, 0, 0))["seconds"] == [111.0, 222.0]
    assert of_task(written, Task(Action.UPDATE, 0, 0))["collective_seconds"] == [11.1, 22.2]
    assert of_task(written, Task(Action.FORWARD, 0, 0)) == times(9.0, 9.0)


def test_an_update_in_one_task_is_that_task():
    assert of_task({"1U0": times(3.0)}, Task(Action.UPDATE, 1, 0)) == times(3.0)
