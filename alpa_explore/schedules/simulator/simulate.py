"""The simulator: a schedule and the times of its stages -> a timeline. The event loop is in `kernel`."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from alpa_explore.errors import ScheduleError
from alpa_explore.schedules.simulator.check import check_tasks, refuse_deadlock
from alpa_explore.schedules.simulator.kernel import run_events
from alpa_explore.schedules.simulator.timeline import Timeline
from alpa_explore.schedules.simulator.times import Links, StageTimes, links_between
from alpa_explore.schedules.task import Action, Schedule, schedule_of


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
