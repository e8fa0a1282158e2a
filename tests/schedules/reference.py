"""A second simulator, written for clarity: the earliest times as a recursion, one link for each pair of submeshes.

A link serves its requests in the order in which the tasks of its submesh end, which is the order of the table.
"""

from functools import cache

from alpa_explore.schedules.simulator.times import StageTimes
from alpa_explore.schedules.task import Action, Schedule, Task

BACKWARDS = (Action.BACKWARD, Action.BACKWARD_INPUT)


def reference_times(schedule: Schedule, times: list[StageTimes]) -> dict[Task, tuple[float, float]]:
    """(start, end) of every task; RecursionError when tasks wait for each other."""
    orders = [schedule.order(p) for p in range(schedule.num_submeshes)]
    place = {task: (p, i) for p, order in enumerate(orders) for i, task in enumerate(order)}
    home = schedule.submesh_of_stage

    def receiver(task: Task) -> int | None:
        """The submesh that the result of a task goes to over a link."""
        if task.action is Action.FORWARD:
            other = task.stage + 1
        elif task.action in BACKWARDS:
            other = task.stage - 1
        else:
            return None
        copy = task.stage // schedule.depth
        return home[other] if other // schedule.depth == copy and home[other] != home[task.stage] else None

    @cache
    def end(task: Task) -> float:
        return start(task) + times[task.stage].seconds(task.action)

    @cache
    def sent(task: Task) -> float:
        """When the result of a task arrives."""
        target = receiver(task)
        if target is None:
            return end(task)
        p, i = place[task]
        before = [t for t in orders[p][:i] if receiver(t) == target]
        begin = max(end(task), sent(before[-1]) if before else 0.0)
        stage_times = times[task.stage]
        return begin + (
            stage_times.send_forward_seconds if task.action is Action.FORWARD else stage_times.send_backward_seconds
        )

    @cache
    def start(task: Task) -> float:
        p, i = place[task]
        ready = [end(orders[p][i - 1])] if i else [0.0]
        stage, microbatch = task.stage, task.microbatch
        if task.action is Action.FORWARD and stage % schedule.depth:
            ready.append(sent(Task(Action.FORWARD, stage - 1, microbatch)))
        if task.action in BACKWARDS and (stage + 1) % schedule.depth:
            ready += [sent(t) for a in BACKWARDS if (t := Task(a, stage + 1, microbatch)) in place]
        return max(ready)

    return {task: (start(task), end(task)) for task in place}
