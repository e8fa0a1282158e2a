"""ZB-H1: 1F1B with the backward pass in two halves, so that the half that nobody waits for fills the bubble.

The stage before waits only for the gradient of its output (I); the gradient of the weights (W) can be computed at any
time after it. Stage s runs the W of a microbatch s backwards later than its I: the stages that would idle at the end
have work left, and no stage holds more than P microbatches, as the first stage of 1F1B does (Qi et al. 2024, arXiv
2401.10241, section 2.3).
"""

from __future__ import annotations

from alpa_explore.schedules.task import Action, Schedule, schedule_of


def zero_bubble_h1(num_stages: int, num_microbatches: int) -> Schedule:
    """The table for one stage a submesh."""
    orders = []
    for stage in range(num_stages):
        ahead = min(num_stages - stage, num_microbatches)
        order = [(Action.FORWARD, stage, m) for m in range(ahead)]
        for m in range(num_microbatches):
            order.append((Action.BACKWARD_INPUT, stage, m))
            if m >= stage:
                order.append((Action.BACKWARD_WEIGHT, stage, m - stage))
            if m + ahead < num_microbatches:
                order.append((Action.FORWARD, stage, m + ahead))
        left = range(max(num_microbatches - stage, 0), num_microbatches)
        order += [(Action.BACKWARD_WEIGHT, stage, m) for m in left]
        orders.append(order)
    return schedule_of("zb-h1", orders, num_microbatches)
