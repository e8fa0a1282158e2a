"""ZB-H1 (Qi et al. 2024, arXiv 2401.10241, §2.3): 1F1B with the backward pass in two halves, one of which fills
bubbles.

The previous stage waits only for the gradient of its output (I); the gradients of the weights (W) can be computed at
any later time. Stage s runs W of a microbatch s backward passes after its I, so later stages still have work at the end
of the iteration. No stage holds more than P microbatches, the number of the first stage in 1F1B.
"""

import numpy as np

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
