"""DualPipe (DeepSeek-V3 report, arXiv 2412.19437, §3.2.1) and DualPipeV, which is one half of it.

DualPipeV runs two stages on each submesh in the shape of a V, as ZB-V does. In its steady part a submesh always has a
forward pass of one stage beside a backward pass of the other, so that one computes while the other communicates. Here
the two run one after the other: the overlap of their communication is not modelled. Its order has eight parts; submesh
p of P repeats, with F0 the forward pass of its first stage, I1 and W1 the halves of the backward pass of its second:

    1   2(P − p − 1) × F0                     5   P − p − 1 × I1 W1 F1 I0 W0
    2   p + 1        × F0 F1                  6   p + 1     × I1 W1 I0 W0, the W of the second half deferred
    3   P − p − 1    × I1 W1 F1               7   P − p − 1 × W I0
    4   B − 2P + p + 1 × F0 I1 W1 F1 I0 W0    8   p + 1     × W

DualPipe runs the stages of two copies of the model, one in either direction: submesh p of P has stage p of the first
copy and stage P − 1 − p of the second. Half of the microbatches enter at either end. Two submeshes p and P − 1 − p do
what submesh p of a DualPipeV of P / 2 submeshes does, one for each copy.
"""

from collections import deque

from alpa_explore.errors import ScheduleError
from alpa_explore.schedules.task import Action, Schedule, Task, schedule_of


def dual_pipe_v(num_submeshes: int, num_microbatches: int) -> Schedule:
    """DualPipeV. ScheduleError unless B ≥ 2P."""
    p, b = num_submeshes, num_microbatches
    if b < 2 * p:
        raise ScheduleError(
            "DualPipeV needs at least two microbatches for each submesh",
            found=f"B = {b} on {p} submeshes",
            remedy=f"Choose B = {2 * p} or more, or zb-v.",
        )
    return schedule_of("dualpipe-v", [_order(place, p, b, (place, 2 * p - 1 - place)) for place in range(p)], b)


def dual_pipe(num_submeshes: int, num_microbatches: int) -> Schedule:
    """DualPipe, with two copies of the model. ScheduleError unless P and B are even and B ≥ 2P."""
    p, b = num_submeshes, num_microbatches
    if p % 2:
        raise ScheduleError(
            "DualPipe needs an even number of submeshes",
            found=f"{p} submeshes",
            remedy=f"Choose {f'{p - 1} or {p + 1}' if p > 1 else '2'} submeshes, or dualpipe-v.",
        )
    if b % 2 or b < 2 * p:
        nearest = f"{2 * p}" if b < 2 * p else f"{b - 1} or {b + 1}"
        raise ScheduleError(
            "DualPipe needs an even number of microbatches, two for each submesh at the least",
            found=f"B = {b} on {p} submeshes",
            remedy=f"Choose B = {nearest}, or another schedule.",
        )
    orders: list[list[Task]] = [[] for _ in range(p)]
    for place in range(p // 2):
        # Stage k of the second copy has the number P + k, and its microbatches are the second half.
        orders[place] = _order(place, p // 2, b // 2, (place, 2 * p - 1 - place), (0, b // 2))
        orders[p - 1 - place] = _order(place, p // 2, b // 2, (p + place, p - 1 - place), (b // 2, 0))
    return schedule_of("dualpipe", orders, b, copies=2)


def _order(place: int, submeshes: int, b: int, stages: tuple[int, int], first: tuple[int, int] = (0, 0)) -> list[Task]:
    """The order of submesh `place` of a DualPipeV; `stages` are its two, `first` their first microbatches."""
    tasks: list[Task] = []
    next_forward, next_backward, deferred = list(first), list(first), deque[Task]()

    def forward(side: int) -> None:
        tasks.append(Task(Action.FORWARD, stages[side], next_forward[side]))
        next_forward[side] += 1

    def backward(side: int, *, defer: bool = False) -> None:
        tasks.append(Task(Action.BACKWARD_INPUT, stages[side], next_backward[side]))
        deferred.append(tasks[-1]._replace(action=Action.BACKWARD_WEIGHT))
        next_backward[side] += 1
        if not defer:
            tasks.append(deferred.pop())

    def weight() -> None:
        tasks.append(deferred.popleft())

    after = submeshes - place - 1
    for _ in range(2 * after):
        forward(0)
    for _ in range(place + 1):
        forward(0)
        forward(1)
    for _ in range(after):
        backward(1)
        forward(1)
    for _ in range(b - 2 * submeshes + place + 1):
        forward(0)
        backward(1)
        forward(1)
        backward(0)
    for _ in range(after):
        backward(1)
        forward(1)
        backward(0)
    defer = False
    for step in range(place + 1):
        defer = defer or (step == (place + 1) // 2 and place % 2 == 1)
        backward(1, defer=defer)
        defer = defer or (step == (place + 1) // 2 and place % 2 == 0)
        backward(0, defer=defer)
    for _ in range(after):
        weight()
        backward(0, defer=True)
    for _ in range(place + 1):
        weight()
    return tasks
