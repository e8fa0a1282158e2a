"""The event loop of the simulator, compiled.

Every submesh runs its tasks in order. When a task ends, its result is sent over a link, which serves requests in order
of arrival while the submesh computes on. A task starts when its submesh is free and its input has arrived. The next
event is always the earliest end of a running task, so requests reach a link in order of time and a link needs no queue:
a send starts at max(now, time at which the link is free).
"""

import numpy as np

from alpa_explore.numerics.arrays import Floats, Ints
from alpa_explore.numerics.compiled import compiled

FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, UPDATE = range(5)
NOTHING = -1
PREVIOUS = -2
"""Cause of a start: the previous task on the same submesh."""


def _steps(starts: Ints, actions: Ints, *_others: object) -> int:
    """A task is looked at when it may start and when it ends, and every submesh for the earliest end."""
    return len(actions) * (8 + len(starts) // 4)


@compiled(steps=_steps)
def run_events(
    starts: Ints,
    actions: Ints,
    stages: Ints,
    microbatches: Ints,
    submesh_of_stage: Ints,
    num_microbatches: int,
    depth: int,
    durations: Floats,
    forward_seconds: Floats,
    backward_seconds: Floats,
    forward_link: Ints,
    backward_link: Ints,
    num_links: int,
) -> tuple[Floats, Floats, Floats, Floats, Ints, Ints, Ints]:
    """(start, end, send start, send end, cause, send cause) of every task, and the position that each submesh reached.

    Every `depth` stages are a pipeline of their own. `forward_seconds[s]` is the time of sending the result of F(s)
    over `forward_link[s]` to stage s + 1, `backward_seconds[s]` that of B(s) to stage s − 1; link −1 means none. The
    cause is why a task started no earlier: PREVIOUS, NOTHING, or the index of the task whose result it waited for. The
    cause of a send is NOTHING or the index of the task whose send occupied the link.
    """
    submeshes, stage_count, total = len(starts) - 1, len(submesh_of_stage), len(actions)
    start, end = np.full(total, np.nan), np.full(total, np.nan)
    send_start, send_end = np.full(total, np.nan), np.full(total, np.nan)
    cause, send_cause = np.full(total, NOTHING), np.full(total, NOTHING)
    # When the input of F(s, m) and the gradient for B(s, m) arrive, and which task produced them.
    arrival = np.full((2, stage_count, num_microbatches), np.inf)
    maker = np.full((2, stage_count, num_microbatches), NOTHING)
    for first in range(0, stage_count, depth):
        arrival[0, first, :] = 0.0
        arrival[1, first + depth - 1, :] = 0.0
    forward_done = np.zeros((stage_count, num_microbatches), dtype=np.bool_)
    input_done = np.zeros((stage_count, num_microbatches), dtype=np.bool_)
    link_free, link_last = np.zeros(num_links), np.full(num_links, NOTHING)
    position = starts[:-1].copy()
    free, running = np.zeros(submeshes), np.full(submeshes, np.inf)
    waiting = np.arange(submeshes)
    waiting_count = submeshes
    while True:
        for w in range(waiting_count):  # submeshes that may be able to start their next task
            p = waiting[w]
            i = position[p]
            if i == starts[p + 1] or running[p] != np.inf:
                continue
            action, s, m = actions[i], stages[i], microbatches[i]
            side = NOTHING
            ready = True
            if action == FORWARD:
                side = 0
            elif action in (BACKWARD, BACKWARD_INPUT):
                side = 1
                ready = forward_done[s, m]
            elif action == BACKWARD_WEIGHT:
                ready = input_done[s, m]
            begin = free[p]
            cause[i] = PREVIOUS if i > starts[p] else NOTHING
            if ready and side >= 0:
                ready = arrival[side, s, m] != np.inf
                if ready and arrival[side, s, m] > begin:
                    begin = arrival[side, s, m]
                    cause[i] = maker[side, s, m]
            if ready:
                start[i] = begin
                end[i] = begin + durations[i]
                running[p] = end[i]
        p = np.argmin(running)
        now = running[p]
        if now == np.inf:
            return start, end, send_start, send_end, cause, send_cause, position
        i = position[p]
        action, s, m = actions[i], stages[i], microbatches[i]
        running[p] = np.inf
        free[p] = now
        position[p] += 1
        waiting[0] = p
        waiting_count = 1
        target, link, seconds, side = NOTHING, NOTHING, 0.0, 0
        if action == FORWARD:
            forward_done[s, m] = True
            if (s + 1) % depth != 0:
                target, link, seconds, side = s + 1, forward_link[s], forward_seconds[s], 0
        elif action in (BACKWARD, BACKWARD_INPUT):
            input_done[s, m] = True
            if s % depth != 0:
                target, link, seconds, side = s - 1, backward_link[s], backward_seconds[s], 1
        if target != NOTHING:
            at = now
            if link != NOTHING:
                if link_free[link] > now:
                    at = link_free[link]
                    send_cause[i] = link_last[link]
                send_start[i] = at
                at += seconds
                send_end[i] = at
                link_free[link] = at
                link_last[link] = i
            arrival[side, target, m] = at
            maker[side, target, m] = i
            receiver = submesh_of_stage[target]
            if receiver != p:
                waiting[1] = receiver
                waiting_count = 2
