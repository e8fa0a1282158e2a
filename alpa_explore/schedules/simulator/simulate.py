"""The simulator: a schedule and the times of its stages -> a timeline. The event loop is in `kernel`.

A schedule can run where every task is listed exactly once, each stage is on one submesh, and no submeshes wait for each
other.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from alpa_explore.errors import ScheduleError
from alpa_explore.numerics.arrays import Ints
from alpa_explore.schedules.simulator.kernel import run_events
from alpa_explore.schedules.simulator.timeline import Timeline
from alpa_explore.schedules.simulator.times import Links, StageTimes, links_between
from alpa_explore.schedules.task import Action, Schedule, Task, schedule_of


def simulate(schedule: Schedule, times: Sequence[StageTimes], links: Links | None = None) -> Timeline:
    """Run `schedule` on `times`, one entry a stage. Raises ScheduleError when it cannot run.

    `links` says which sends share a link; by default each direction between two submeshes has its own link.
    """
    if len(times) != schedule.num_stages:
        raise ScheduleError(
            "A schedule needs the times of every stage",
            found=f"{schedule.num_stages} stages in the schedule, times of {len(times)}",
            remedy="Make the schedule for as many stages as the pipeline has.",
        )
    check_tasks(schedule)
    return _run(_with_updates(schedule), times, links or links_between(schedule.submesh_of_stage))


def check(schedule: Schedule) -> None:
    """ScheduleError when a task is missing, repeated or on a second submesh, or when submeshes wait for each other."""
    unit = StageTimes(forward_seconds=1.0, backward_input_seconds=1.0, backward_weight_seconds=1.0)
    simulate(schedule, [unit] * schedule.num_stages)


def without_sends(timeline: Timeline) -> Timeline:
    """The same tasks in the same order, where sends take no time."""
    free = [
        replace(
            t,
            forward_seconds=t.forward_seconds - t.send_wait_seconds[0],
            backward_input_seconds=t.backward_input_seconds - t.send_wait_seconds[1],
            send_wait_seconds=(0.0, 0.0),
            send_forward_seconds=0.0,
            send_backward_seconds=0.0,
        )
        for t in timeline.times
    ]
    return _run(timeline.schedule, free, timeline.links)


def _run(with_updates: Schedule, times: Sequence[StageTimes], links: Links) -> Timeline:
    table = np.array([[t.seconds(action) for t in times] for action in Action], dtype=np.float64)
    start, end, send_start, send_end, cause, send_cause, positions = run_events(
        with_updates.starts,
        with_updates.actions,
        with_updates.stages,
        with_updates.microbatches,
        np.array(with_updates.submesh_of_stage),
        with_updates.num_microbatches,
        with_updates.depth,
        table[with_updates.actions, with_updates.stages],
        np.array([t.send_forward_seconds for t in times]),
        np.array([t.send_backward_seconds for t in times]),
        np.array(links.forward),
        np.array(links.backward),
        max(len(links.names), 1),
    )
    refuse_deadlock(with_updates, positions)  # whatever the times are
    return Timeline(
        schedule=with_updates,
        times=tuple(times),
        links=links,
        start_seconds=start,
        end_seconds=end,
        send_start_seconds=send_start,
        send_end_seconds=send_end,
        cause=cause,
        send_cause=send_cause,
    )


def _with_updates(schedule: Schedule) -> Schedule:
    """The schedule with the update of every stage at the end of its submesh."""
    stages_of: list[list[int]] = [[] for _ in range(schedule.num_submeshes)]
    for stage, submesh in enumerate(schedule.submesh_of_stage):
        stages_of[submesh].append(stage)
    updates_of_submesh = [
        np.array([[Action.UPDATE, s, 0] for s in stages], dtype=np.int64).reshape(-1, 3) for stages in stages_of
    ]
    flat = np.stack([schedule.actions, schedule.stages, schedule.microbatches], axis=1)
    bounds = schedule.starts
    orders = [
        np.concatenate([flat[bounds[p] : bounds[p + 1]], updates]) for p, updates in enumerate(updates_of_submesh)
    ]
    return schedule_of(schedule.name, orders, schedule.num_microbatches, copies=schedule.copies)


_SHOWN = 6
"""Number of waiting submeshes that an error names."""


def check_tasks(schedule: Schedule) -> None:
    """ScheduleError when a task is missing, repeated or on a second submesh."""
    stages, microbatches = schedule.num_stages, schedule.num_microbatches
    if not len(schedule.actions):
        raise ScheduleError(
            "The schedule is empty", found="no task", remedy="List a forward and a backward pass of every microbatch."
        )
    _one_submesh_a_stage(schedule)
    for column, most, name in ((schedule.stages, stages, "stages"), (schedule.microbatches, microbatches, "B")):
        if column.min() < 0 or column.max() >= most:
            raise ScheduleError(
                "A task has a stage or microbatch outside the pipeline",
                found=f"{name} = {most}, but a task has {column.max()}",
                remedy="Number stages and microbatches from 0.",
            )
    counts = np.zeros((4, stages, microbatches), dtype=np.int64)
    np.add.at(counts, (schedule.actions, schedule.stages, schedule.microbatches), 1)
    forward, backward, of_input, of_weight = counts
    expected = _passes(schedule)
    _exactly_once(forward, expected, "forward pass")
    _exactly_once(backward + of_input, expected, "backward pass")
    wrong = np.argwhere(of_input != of_weight)
    if len(wrong):
        stage, microbatch = wrong[0].tolist()
        half = "W" if of_input[stage, microbatch] else "I"
        raise ScheduleError(
            "A split backward pass needs both halves, I and W",
            found=f"{stage}{'I' if half == 'W' else 'W'}{microbatch} without {stage}{half}{microbatch}",
            remedy=f"Add {stage}{half}{microbatch}, or use the whole backward pass {stage}B{microbatch}.",
        )


def refuse_deadlock(schedule: Schedule, positions: Ints) -> None:
    """ScheduleError when a submesh did not reach the end of its order; names the waiting tasks and what they wait
    for."""
    stuck = [p for p in range(schedule.num_submeshes) if positions[p] < schedule.starts[p + 1]]
    if not stuck:
        return
    done = np.zeros(len(schedule.actions), dtype=np.bool_)
    for p in range(schedule.num_submeshes):
        done[schedule.starts[p] : positions[p]] = True
    finished = {schedule.task(int(i)) for i in np.flatnonzero(done)}
    lines = []
    for p in stuck[:_SHOWN]:
        task = schedule.task(int(positions[p]))
        missing = " and ".join(str(t) for t in _needs(task, schedule.depth) if _open(t, finished))
        lines.append(f"submesh {p} waits at {task} for {missing}")
    more = f", and {len(stuck) - _SHOWN} more" if len(stuck) > _SHOWN else ""
    raise ScheduleError(
        "The schedule deadlocks",
        found="; ".join(lines) + more,
        remedy="On each submesh, move the tasks that others wait for before the task at which it waits itself.",
    )


def _needs(task: Task, depth: int) -> list[Task]:
    """The tasks that must end before `task` can start; every `depth` stages are a copy of the model."""
    action, stage, microbatch = task
    if action is Action.FORWARD:
        return [Task(Action.FORWARD, stage - 1, microbatch)] if stage % depth else []
    if action is Action.BACKWARD_WEIGHT:
        return [Task(Action.BACKWARD_INPUT, stage, microbatch)]
    later = [Task(Action.BACKWARD, stage + 1, microbatch)] if (stage + 1) % depth else []
    return [Task(Action.FORWARD, stage, microbatch), *later]


def _open(task: Task, finished: set[Task]) -> bool:
    """Whether `task` has not finished; the first half of a backward pass also provides the gradient of the whole."""
    if task.action is Action.BACKWARD and task._replace(action=Action.BACKWARD_INPUT) in finished:
        return False
    return task not in finished


def _passes(schedule: Schedule) -> Ints:
    """How many forward passes there must be of each stage and microbatch: one in its own copy of the model."""
    stages, microbatches = np.arange(schedule.num_stages), np.arange(schedule.num_microbatches)
    copy_of_microbatch = microbatches * schedule.copies // max(schedule.num_microbatches, 1)
    return np.asarray(stages[:, None] // schedule.depth == copy_of_microbatch, dtype=np.int64)


def _exactly_once(counts: Ints, expected: Ints, name: str) -> None:
    wrong = np.argwhere(counts != expected)
    if len(wrong):
        stage, microbatch = wrong[0].tolist()
        if not expected[stage, microbatch]:
            raise ScheduleError(
                "A microbatch runs through one copy of the model only",
                found=f"a {name} of microbatch {microbatch} on stage {stage}, of another copy",
                remedy="Leave it out.",
            )
        raise ScheduleError(
            f"Every stage needs one {name} of every microbatch",
            found=f"{counts[stage, microbatch]} of microbatch {microbatch} on stage {stage}"
            + (f" ({len(wrong) - 1} more like it)" if len(wrong) > 1 else ""),
            remedy="List each of them exactly once.",
        )


def _one_submesh_a_stage(schedule: Schedule) -> None:
    rows = np.repeat(np.arange(schedule.num_submeshes), np.diff(schedule.starts))
    expected = np.array(schedule.submesh_of_stage)[schedule.stages]
    wrong = np.flatnonzero(rows != expected)
    if len(wrong):
        i = int(wrong[0])
        raise ScheduleError(
            "All tasks of a stage must run on one submesh",
            found=f"{schedule.task(i)} on submesh {rows[i]}, other tasks of stage {schedule.stages[i]} on submesh "
            f"{expected[i]}",
            remedy="Put all tasks of a stage in the row of one submesh.",
        )
