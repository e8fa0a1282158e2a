"""A timeline in the trace event format that Perfetto (ui.perfetto.dev) and chrome://tracing open.

Each submesh is a process with two lanes, compute and collectives (their share of a task, drawn at its end), and a
counter of its memory. The links are one more process with a lane each. An arrow leads from a task through the send of
its result to the task that reads it. Tasks are named as torch's pipeline runtime names them (`PP:1F0`), so that a
measured trace can be compared. Times are in microseconds, the unit of the format.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from alpa_explore.schedules.simulator.memory import memory_curve
from alpa_explore.schedules.simulator.timeline import Timeline
from alpa_explore.schedules.task import Action

_COMPUTE, _COLLECTIVES = 0, 1
_CATEGORIES = {
    Action.FORWARD: "forward",
    Action.BACKWARD: "backward",
    Action.BACKWARD_INPUT: "backward (inputs)",
    Action.BACKWARD_WEIGHT: "backward (weights)",
    Action.UPDATE: "update",
}

Event = dict[str, Any]


def chrome_trace(timeline: Timeline, names: Sequence[str] = ()) -> dict[str, Any]:
    """The trace as JSON data; `names` are the names of the submeshes (default 'submesh 0', …)."""
    events = [
        *_lanes(timeline, names),
        *(event for p in range(timeline.schedule.num_submeshes) for event in _submesh(timeline, p)),
        *_sends(timeline),
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _lanes(timeline: Timeline, names: Sequence[str]) -> Iterator[Event]:
    submeshes = timeline.schedule.num_submeshes

    def named(kind: str, process: int, thread: int, name: str) -> Event:
        return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}

    for p in range(submeshes):
        yield named("process_name", p, 0, names[p] if p < len(names) else f"submesh {p}")
        yield named("thread_name", p, _COMPUTE, "compute")
        yield named("thread_name", p, _COLLECTIVES, "collectives")
    if timeline.links.names:
        yield named("process_name", submeshes, 0, "links")
        for link, name in enumerate(timeline.links.names):
            yield named("thread_name", submeshes, link, name)


def _submesh(timeline: Timeline, submesh: int) -> Iterator[Event]:
    indices = timeline.submesh(submesh)
    tasks = timeline.schedule.order(submesh)
    starts, ends = (1e6 * timeline.start_seconds[indices]).tolist(), (1e6 * timeline.end_seconds[indices]).tolist()
    for task, start, end in zip(tasks, starts, ends, strict=True):
        common = {"ph": "X", "pid": submesh, "name": f"PP:{task}", "cat": _CATEGORIES[task.action]}
        details = {"stage": task.stage, "microbatch": task.microbatch}
        yield common | {"tid": _COMPUTE, "ts": start, "dur": end - start, "args": details}
        collectives = 1e6 * timeline.times[task.stage].collective_seconds(task.action)
        if collectives:
            yield common | {"tid": _COLLECTIVES, "ts": end - collectives, "dur": collectives, "cat": "collectives"}
    curve = memory_curve(timeline, submesh)
    keep = np.append(np.diff(curve.seconds) > 0, True)  # of several changes at the same time the last
    columns = (1e6 * curve.seconds[keep], curve.activation_bytes[keep], curve.workspace_bytes[keep])
    for at, activations, workspace in zip(*(c.tolist() for c in columns), strict=True):
        yield {
            "ph": "C",
            "pid": submesh,
            "tid": 0,
            "name": "memory (bytes)",
            "ts": at,
            "args": {
                "weights": curve.weight_bytes,
                "gradients": curve.gradient_bytes,
                "optimizer": curve.optimizer_bytes,
                "activations": activations,
                "workspace": workspace,
            },
        }


def _sends(timeline: Timeline) -> Iterator[Event]:
    schedule = timeline.schedule
    tasks = [task for p in range(schedule.num_submeshes) for task in schedule.order(p)]
    # The task that reads a result: forward of the next stage, or backward (or its first half) of the previous one.
    readers = {
        (task.action is Action.FORWARD, task.stage, task.microbatch): i
        for i, task in enumerate(tasks)
        if task.action in (Action.FORWARD, Action.BACKWARD, Action.BACKWARD_INPUT)
    }
    for i in np.flatnonzero(~np.isnan(timeline.send_start_seconds)).tolist():
        task = tasks[i]
        forward = task.action is Action.FORWARD
        reader = readers[forward, task.stage + (1 if forward else -1), task.microbatch]
        source, target = (schedule.submesh_of_stage[tasks[t].stage] for t in (i, reader))
        start, end = 1e6 * float(timeline.send_start_seconds[i]), 1e6 * float(timeline.send_end_seconds[i])
        lane = {"pid": schedule.num_submeshes, "tid": timeline.link_of(i)}
        yield {
            "ph": "X",
            **lane,
            "name": f"send {task}",
            "cat": "send",
            "ts": start,
            "dur": end - start,
            "args": {"from": source, "to": target},
        }
        flow = {"name": "activation" if forward else "gradient", "cat": "send", "id": i}
        # An arrow binds to the slice that encloses its time; the middle of a slice is inside it despite rounding.
        yield flow | {"ph": "s", "pid": source, "tid": _COMPUTE, "ts": _middle(timeline, i)}
        yield flow | lane | {"ph": "t", "ts": (start + end) / 2}
        yield flow | {"ph": "f", "bp": "e", "pid": target, "tid": _COMPUTE, "ts": _middle(timeline, reader)}


def _middle(timeline: Timeline, task: int) -> float:
    return 5e5 * float(timeline.start_seconds[task] + timeline.end_seconds[task])
