"""GPipe: all microbatches forward, then all backward. Every stage holds all B microbatches in between."""

from __future__ import annotations

from alpa_explore.schedules.task import Action, Schedule, schedule_of


def gpipe(num_stages: int, num_microbatches: int) -> Schedule:
    """The table for one stage a submesh."""
    microbatches = range(num_microbatches)
    orders = [
        [
            *((Action.FORWARD, stage, m) for m in microbatches),
            *((Action.BACKWARD, stage, m) for m in microbatches),
        ]
        for stage in range(num_stages)
    ]
    return schedule_of("gpipe", orders, num_microbatches)
