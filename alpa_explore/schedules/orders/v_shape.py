"""ZB-V, V-Half and V-Min: two stages on each submesh in the shape of a V, the backward pass in two halves.

(Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", arXiv 2405.15362.) Stage k < P runs on submesh k,
stage P … 2P − 1 on submesh 2P − 1 − k: data go down and come back up, so the first submesh has the first and the last
stage. A microbatch makes four passes on a submesh: F down, F up, I down, I up. In the repeated pattern they begin
`down`, `up`, `down`, `up` slots later on each next submesh, and a microbatch follows the one before it after 6 slots,
as many as a submesh has tasks for it. On every submesh the activations of a microbatch live for about
2P·(down + up) slots in all, so a submesh holds a sixth of that:

    ZB-V     down + up = 6    activations of 2P stages            as the first stage of 1F1B; nearly no bubble
    V-Half   down + up = 3    activations of 2·⌊(P + 2)/2⌋        half of it
    V-Min    down + up = 2    activations of 2·⌊(P + 4)/3⌋        a third of it

The pattern gives the order of F and I. The W follow from running it, each task one slot long (`weight_halves`), so the
orders are made for F, I and W of equal length; where these differ, V-Half and V-Min wait in every microbatch.
"""

from itertools import product

import numpy as np

from alpa_explore.numerics.arrays import Ints
from alpa_explore.numerics.compiled import compiled
from alpa_explore.schedules.task import Action, Schedule, schedule_of

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


_PERIOD = 6
"""Slots from a microbatch to the next: F, I and W of two stages."""


def zero_bubble_v(num_submeshes: int, num_microbatches: int) -> Schedule:
    """ZB-V: nearly no bubble, the memory of 1F1B."""
    return _v_shape("zb-v", num_submeshes, num_microbatches, down=3, up=3, most_held=2 * num_submeshes)


def v_half(num_submeshes: int, num_microbatches: int) -> Schedule:
    """V-Half: half the memory of 1F1B."""
    most = 2 * ((num_submeshes + 2) // 2)
    return _v_shape("v-half", num_submeshes, num_microbatches, down=2, up=1, most_held=most)


def v_min(num_submeshes: int, num_microbatches: int) -> Schedule:
    """V-Min: a third of the memory of 1F1B."""
    most = 2 * ((num_submeshes + 4) // 3)
    return _v_shape("v-min", num_submeshes, num_microbatches, down=1, up=1, most_held=most)


def _v_shape(name: str, submeshes: int, microbatches: int, *, down: int, up: int, most_held: int) -> Schedule:
    actions = np.array([Action.FORWARD, Action.FORWARD, Action.BACKWARD_INPUT, Action.BACKWARD_INPUT])
    numbers = np.arange(microbatches)
    orders = []
    for p, begins in enumerate(_pattern(submeshes, down, up)):
        stages = np.array([p, 2 * submeshes - 1 - p, 2 * submeshes - 1 - p, p])
        sequence = np.argsort((np.array(begins)[:, None] + _PERIOD * numbers).ravel())
        columns = (np.repeat(actions, microbatches), np.repeat(stages, microbatches), np.tile(numbers, 4))
        orders.append(np.stack(columns, axis=1)[sequence])
    complete = with_weight_halves(np.array(orders), 2 * submeshes, microbatches, most_held)
    return schedule_of(name, list(complete), microbatches)


def _pattern(submeshes: int, down: int, up: int) -> list[tuple[int, int, int, int]]:
    """The slots at which microbatch 0 begins its four passes on each submesh.

    Of the delays at the three turns of its way the least such that no two passes meet on a submesh.
    """
    last = submeshes - 1
    for delays in sorted(product(range(_PERIOD), repeat=3), key=lambda d: (sum(d), d)):
        turn = last * down + 1 + delays[0]
        back = turn + last * up + 1 + delays[1]
        again = back + last * down + 1 + delays[2]
        begins = [(p * down, turn + (last - p) * up, back + p * down, again + (last - p) * up) for p in range(last + 1)]
        if all(len({at % _PERIOD for at in of_submesh}) == len(of_submesh) for of_submesh in begins):
            return begins
    raise AssertionError("these three patterns exist for every number of submeshes")
