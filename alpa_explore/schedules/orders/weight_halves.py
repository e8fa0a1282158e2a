"""Where the weight halves of backward passes run, given the order of all other tasks; compiled."""

from __future__ import annotations

import numpy as np

from alpa_explore.numerics.arrays import Ints
from alpa_explore.numerics.compiled import compiled

FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = 0, 2, 3
"""`task.Action`: a kernel reads no constants of other modules."""


@compiled()
def with_weight_halves(orders: Ints, num_stages: int, num_microbatches: int, most_held: int) -> Ints:
    """The orders with a W for every I; both are [submeshes, tasks, (action, stage, microbatch)].

    Tasks run as early as they can, slot by slot, each for one slot. Where the next task of a submesh must wait for
    another stage, or is a forward pass and the submesh holds the activations of `most_held` already, the submesh runs
    its oldest open W.
    """
    submeshes, given, _ = orders.shape
    weights = given // 2
    complete = np.empty((submeshes, given + weights, 3), dtype=np.int64)
    # The slot from which on the result of F and of I is there.
    ready = np.full((2, num_stages, num_microbatches), np.iinfo(np.int64).max)
    # For each submesh: tasks run of those given, all tasks run, backward passes run, and where its oldest open W is.
    position, written = np.zeros(submeshes, dtype=np.int64), np.zeros(submeshes, dtype=np.int64)
    inputs_run, oldest = np.zeros(submeshes, dtype=np.int64), np.zeros(submeshes, dtype=np.int64)
    left, now = submeshes * (given + weights), 0
    while left > 0:
        for p in range(submeshes):
            runs = position[p] < given
            if runs:
                action, s, m = orders[p, position[p]]
                if action == FORWARD:
                    # Held: forward passes run − weight halves run; what is written holds all three kinds.
                    weights_run = written[p] - position[p]
                    held = position[p] - inputs_run[p] - weights_run
                    runs = held < most_held and (s == 0 or ready[0, s - 1, m] <= now)
                else:
                    runs = ready[0, s, m] <= now and (s == num_stages - 1 or ready[1, s + 1, m] <= now)
                if runs:
                    position[p] += 1
                    if action == FORWARD:
                        ready[0, s, m] = now + 1
                    else:
                        ready[1, s, m] = now + 1
                        inputs_run[p] += 1
            if not runs:
                weights_run = written[p] - position[p]
                if weights_run == inputs_run[p]:
                    continue
                while orders[p, oldest[p], 0] != BACKWARD_INPUT:
                    oldest[p] += 1
                action, s, m = BACKWARD_WEIGHT, orders[p, oldest[p], 1], orders[p, oldest[p], 2]
                oldest[p] += 1
            complete[p, written[p], 0] = action
            complete[p, written[p], 1] = s
            complete[p, written[p], 2] = m
            written[p] += 1
            left -= 1
        now += 1
    return complete
