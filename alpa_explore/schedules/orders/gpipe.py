"""GPipe (Huang et al. 2019, arXiv 1811.06965): all forward passes, then all backward passes.

Every stage holds the activations of all B microbatches in between.
"""

from __future__ import annotations

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
