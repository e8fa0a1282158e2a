"""ZB-H1: 1F1B with the backward pass in two halves, so that the half that nobody waits for fills the bubble.

The stage before waits only for the gradient of its output (I); the gradient of the weights (W) can be computed at any
time after it. Stage s runs the W of a microbatch s backwards later than its I: the stages that would idle at the end
have work left, and no stage holds more than P microbatches, as the first stage of 1F1B does (Qi et al. 2024, arXiv
2401.10241, section 2.3).
"""

from __future__ import annotations

import numpy as np

from alpa_explore.schedules.task import Action, Schedule, order_of, schedule_of


def zero_bubble_h1(num_stages: int, num_microbatches: int) -> Schedule:
    """The table for one stage a submesh."""
    orders = []
    # As many rounds more as the last stage is late with its W.
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
