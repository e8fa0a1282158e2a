"""Schedules by name."""

from collections.abc import Callable, Sequence

from alpa_explore.errors import OptionError, ScheduleError, UnknownNameError, nearest_names
from alpa_explore.schedules.orders.dual_pipe import dual_pipe, dual_pipe_v
from alpa_explore.schedules.orders.one_f_one_b import (
    eager_one_f_one_b,
    gpipe,
    interleaved_one_f_one_b,
    one_f_one_b,
    zero_bubble_h1,
)
from alpa_explore.schedules.orders.v_shape import v_half, v_min, zero_bubble_v
from alpa_explore.schedules.task import Schedule

INTERLEAVED = "interleaved-1f1b"
V_SHAPES = ("zb-v", "v-half", "v-min", "dualpipe-v")
"""Stages k and 2P − 1 − k run on submesh k."""
DUAL_PIPE = "dualpipe"
"""Stage k of one copy of the model and stage P − 1 − k of another run on submesh k."""

_FIXED: dict[str, Callable[[int, int], Schedule]] = {
    "1f1b": one_f_one_b,
    "gpipe": gpipe,
    "eager-1f1b": eager_one_f_one_b,
    "zb-h1": zero_bubble_h1,
    "zb-v": zero_bubble_v,
    "v-half": v_half,
    "v-min": v_min,
    "dualpipe-v": dual_pipe_v,
    DUAL_PIPE: dual_pipe,
}

SCHEDULES = (*_FIXED, INTERLEAVED)
"""All names; the first is the default of a plan."""

MOST_TASKS = 2**24
"""Microbatches × stages of a schedule that is made: about a gigabyte of arrays."""


def submeshes_in_turn(name: str, num_submeshes: int, stages_per_submesh: int) -> tuple[int, ...]:
    """The submesh of each stage: round after round in the same direction, or, in a V shape and in
    DualPipe, down and back up."""
    down = tuple(range(num_submeshes))
    return (*down, *reversed(down)) if name in (*V_SHAPES, DUAL_PIPE) else down * stages_per_submesh


def layers_in_turns(counts: Sequence[int], order: Sequence[int]) -> list[int]:
    """The layers of each stage: submesh p has `counts[p]` in all, which its turns in `order` share; the last ones have
    one more where they do not come out even."""
    turns, taken = len(order) // len(counts), [0] * len(counts)
    layers = []
    for p in order:
        layers.append(counts[p] * (taken[p] + 1) // turns - counts[p] * taken[p] // turns)
        taken[p] += 1
    return layers


def build_schedule(
    name: str, num_submeshes: int, num_microbatches: int, *, stages_per_submesh: int | None = None
) -> Schedule:
    """The schedule `name`. `stages_per_submesh` (default 2) applies to the interleaved schedule only.

    Raises UnknownNameError; ScheduleError when a schedule of this size does not exist; OptionError for sizes below 1,
    and for another number of stages per submesh than the schedule has.
    """
    if name not in SCHEDULES:
        raise UnknownNameError("Unknown schedule", found=repr(name), remedy=nearest_names(name, SCHEDULES))
    if num_submeshes < 1 or num_microbatches < 1:
        raise OptionError(
            "A pipeline needs at least one submesh and one microbatch",
            found=f"{num_submeshes} submeshes, B = {num_microbatches}",
            remedy="Give 1 or more of each.",
        )
    turns = 2 if stages_per_submesh is None else stages_per_submesh
    if num_submeshes * turns * num_microbatches > MOST_TASKS:
        raise ScheduleError(
            "The schedule has more tasks than are simulated",
            found=f"{num_microbatches:,} microbatches on {num_submeshes} submeshes, {MOST_TASKS:,} tasks at most",
            remedy="Plan with fewer microbatches; each may have more samples.",
        )
    if name == INTERLEAVED:
        return interleaved_one_f_one_b(num_submeshes, num_microbatches, turns)
    stages = 2 if name in (*V_SHAPES, DUAL_PIPE) else 1
    if stages_per_submesh not in (None, stages):
        raise OptionError(
            f"The schedule {name} runs {'one stage' if stages == 1 else 'two stages'} on each submesh",
            found=f"{stages_per_submesh} stages a submesh",
            remedy=f"Choose {INTERLEAVED}, or leave the option out.",
        )
    return _FIXED[name](num_submeshes, num_microbatches)
