"""Interleaved 1F1B: every submesh runs v stages, which makes the bubble v times smaller.

Stage k runs on submesh k mod P. Microbatches run in groups of P: a submesh runs a group through its first stage, then
its second, …; backward passes in the opposite order of stages. Submesh p warms up with 2(P − p − 1) + (v − 1)·P
forwards (Narayanan et al. 2021, arXiv 2104.04473, section 2.2). Groups must be full: P divides B.
"""

from alpa_explore.errors import ScheduleError
from alpa_explore.schedules.task import Action, Schedule, schedule_of


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
    orders = []
    for submesh in range(p):
        warm_up = min(2 * (p - submesh - 1) + (v - 1) * p, b * v)

        def task_of(k: int, *, backward: bool, submesh: int = submesh) -> tuple[int, int, int]:
            group, inside = divmod(k, p * v)
            turn, place = divmod(inside, p)
            turn_of_pass = v - 1 - turn if backward else turn
            return (Action.BACKWARD if backward else Action.FORWARD, turn_of_pass * p + submesh, group * p + place)

        order = [task_of(k, backward=False) for k in range(warm_up)]
        for k in range(b * v - warm_up):
            order += [task_of(warm_up + k, backward=False), task_of(k, backward=True)]
        order += [task_of(k, backward=True) for k in range(b * v - warm_up, b * v)]
        orders.append(order)
    return schedule_of("interleaved-1f1b", orders, b)
