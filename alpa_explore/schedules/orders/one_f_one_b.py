"""1F1B: after a warm-up of forward passes each stage alternates one forward and one backward pass.

It therefore holds the activations of few microbatches. 1F1B is the schedule of PipeDream-Flush (Narayanan et al. 2021,
arXiv 2006.09503), eager 1F1B that of Zhuang et al. 2023 (arXiv 2211.05322).

Stage s of P warms up with w(s) − 1 forwards and then always has w(s) microbatches in flight:

    1F1B         w(s) = P − s
    eager 1F1B   w(s) = 2(P − s) − 1

Eager 1F1B holds up to twice as many; in return a send in either direction has one task of slack.
"""

import numpy as np

from alpa_explore.schedules.task import Action, Schedule, order_of, schedule_of


def gpipe(num_stages: int, num_microbatches: int) -> Schedule:
    """The schedule for one stage on each submesh."""
    backward = [(Action.BACKWARD, np.arange(num_microbatches))]
    orders = [
        order_of(stage, warm_up=num_microbatches, rounds=backward, num_microbatches=num_microbatches)
        for stage in range(num_stages)
    ]
    return schedule_of("gpipe", orders, num_microbatches)


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
