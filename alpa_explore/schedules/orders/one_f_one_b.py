"""1F1B: after a warm-up of forward passes each stage alternates one forward and one backward pass.

It therefore holds the activations of few microbatches. 1F1B is the schedule of PipeDream-Flush (Narayanan et al. 2021,
arXiv 2006.09503), eager 1F1B that of Zhuang et al. 2023 (arXiv 2211.05322).

Stage s of P warms up with w(s) − 1 forwards and then always has w(s) microbatches in flight:

    1F1B         w(s) = P − s
    eager 1F1B   w(s) = 2(P − s) − 1

Eager 1F1B holds up to twice as many; in return a send in either direction has one task of slack.

GPipe (Huang et al. 2019, arXiv 1811.06965) runs all forward passes, then all backward passes; every stage holds the
activations of all B microbatches in between.

Interleaved: every submesh runs v stages, which makes the bubble v times smaller. Stage k runs on submesh k mod P.
Microbatches run in groups of P: a submesh runs a group through its first stage, then its second, …; backward passes in
the opposite order of stages. Submesh p warms up with 2(P − p − 1) + (v − 1)·P forwards (Narayanan et al. 2021, arXiv
2104.04473, section 2.2). Groups must be full: P divides B.

ZB-H1 (Qi et al. 2024, arXiv 2401.10241, §2.3) has the backward pass in two halves, one of which fills bubbles. The
previous stage waits only for the gradient of its output (I); the gradients of the weights (W) can be computed at any
later time. Stage s runs W of a microbatch s backward passes after its I, so later stages still have work at the end of
the iteration. No stage holds more than P microbatches, the number of the first stage in 1F1B.
"""

import numpy as np

from alpa_explore.errors import ScheduleError
from alpa_explore.schedules.task import Action, Schedule, order_of, schedule_of


def zero_bubble_h1(num_stages: int, num_microbatches: int) -> Schedule:
    """The schedule for one stage on each submesh."""
    orders = []
    # Additional rounds for the W of the last stage, which runs that many rounds later than its I.
    microbatches = np.arange(num_microbatches + num_stages)
    for stage in range(num_stages):
        ahead = min(num_stages - stage, num_microbatches)
        rounds = [
            (Action.BACKWARD_INPUT, microbatches),
            (Action.BACKWARD_WEIGHT, microbatches - stage),
            (Action.FORWARD, microbatches + ahead),
        ]
        orders.append(order_of(stage, warm_up=ahead, rounds=rounds, num_microbatches=num_microbatches))
    return schedule_of("zb-h1", orders, num_microbatches)


def interleaved_one_f_one_b(num_submeshes: int, num_microbatches: int, stages_per_submesh: int) -> Schedule:
    """The schedule for `stages_per_submesh` stages on each submesh. ScheduleError unless P divides B."""
    p, b, v = num_submeshes, num_microbatches, stages_per_submesh
    if v < 1:
        raise ScheduleError(
            "An interleaved schedule needs at least one stage on each submesh",
            found=f"{v} stages a submesh",
            remedy="Give 2 or more.",
        )
    if b % p:
        lower = b - b % p
        raise ScheduleError(
            "The interleaved schedule needs B to be a multiple of the number of submeshes",
            found=f"B = {b} on {p} submeshes",
            remedy=f"Choose B = {f'{lower} or {lower + p}' if lower else p}, or another schedule.",
        )
    k = np.arange(b * v)
    group, inside = np.divmod(k, p * v)
    turn, place = np.divmod(inside, p)
    orders = []
    for submesh in range(p):
        warm_up = min(2 * (p - submesh - 1) + (v - 1) * p, b * v)
        order = np.empty((2 * b * v, 3), dtype=np.int64)
        passes = (
            (Action.FORWARD, turn, np.maximum(k, 2 * k - warm_up)),
            (Action.BACKWARD, v - 1 - turn, np.minimum(warm_up + 2 * k + 1, b * v + k)),
        )
        for action, turn_of_pass, at in passes:
            order[at, 0], order[at, 1], order[at, 2] = action, turn_of_pass * p + submesh, group * p + place
        orders.append(order)
    return schedule_of("interleaved-1f1b", orders, b)


def gpipe(num_stages: int, num_microbatches: int) -> Schedule:
    """The schedule for one stage on each submesh."""
    return _alternating("gpipe", [num_microbatches] * num_stages, num_microbatches)


def one_f_one_b(num_stages: int, num_microbatches: int) -> Schedule:
    """The schedule for one stage on each submesh."""
    return _alternating("1f1b", [num_stages - s for s in range(num_stages)], num_microbatches)


def eager_one_f_one_b(num_stages: int, num_microbatches: int) -> Schedule:
    """The schedule for one stage on each submesh."""
    return _alternating("eager-1f1b", [2 * (num_stages - s) - 1 for s in range(num_stages)], num_microbatches)


def _alternating(name: str, in_flight: list[int], num_microbatches: int) -> Schedule:
    orders = []
    microbatches = np.arange(num_microbatches)
    for stage, most in enumerate(in_flight):
        ahead = min(most, num_microbatches)
        rounds = [(Action.BACKWARD, microbatches), (Action.FORWARD, microbatches + ahead)]
        orders.append(order_of(stage, warm_up=ahead, rounds=rounds, num_microbatches=num_microbatches))
    return schedule_of(name, orders, num_microbatches)
