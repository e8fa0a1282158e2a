"""Seconds of the passes of an interleaved layout, by the simulator that gives T of a plan.

Interleaved, the parts of a stage need not be alike: the head makes the last of them longer, and all others wait for it.
So the passes of a few microbatches are simulated. Once the pipeline is full, every further round of P microbatches on
its P stages takes the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from alpa_explore.schedules.catalog import INTERLEAVED, build_schedule
from alpa_explore.schedules.simulator.simulate import simulate
from alpa_explore.schedules.simulator.times import StageTimes, links_between
from alpa_explore.schedules.task import Schedule

FULL_ROUNDS = 3
"""Rounds of P microbatches after which every further one takes the same time: within 1 % where the first or the last
part is 1.3 or 2.5 times as long as the others, and mostly exactly (2 rounds: within 6 %)."""


def interleaved_seconds(
    forward: Sequence[float],
    backward: Sequence[float],
    borders: Sequence[float],
    nodes: Sequence[range],
    *,
    waits: float,
    microbatches: int,
) -> tuple[float, float]:
    """(seconds of the first `microbatches`, seconds of each that follows them) of a pipeline.

    `forward` and `backward` are the seconds of each part of the model for one microbatch; part k runs on stage k mod P.
    `borders[p]` are the seconds of one send from stage p to the next (behind the last: to the first), of which a stage
    waits for the share `waits`; `nodes[p]` are those of stage p. Sends between the same nodes share a link. The second
    figure is 0 where there are fewer than `FULL_ROUNDS` rounds: then the first holds for this number alone.
    """
    parts, stages = len(forward), len(nodes)
    sends = [borders[part % stages] if part + 1 < parts and stages > 1 else 0.0 for part in range(parts)]
    times = []
    for part in range(parts):
        ahead, back = sends[part], sends[part - 1] if part else 0.0
        waited = waits * (ahead + back)
        times.append(
            StageTimes(
                forward_seconds=forward[part] + waited,
                backward_input_seconds=backward[part] + waited,
                backward_weight_seconds=0.0,
                send_forward_seconds=(1.0 - waits) * ahead,
                send_backward_seconds=(1.0 - waits) * back,
            )
        )

    def link(a: int, b: int) -> str:
        of_nodes = nodes[a] != nodes[b]
        return " → ".join(f"node {tuple(nodes[s])}" if of_nodes else f"stage {s}" for s in (a, b))

    links = links_between([part % stages for part in range(parts)], link)

    def seconds(microbatches: int) -> float:
        return simulate(_schedule(stages, microbatches, parts // stages), times, links).makespan_seconds

    if microbatches < FULL_ROUNDS * stages:  # the schedule has whole rounds alone: between two of them
        rounds = max(microbatches // stages, 1)
        low, rest = seconds(rounds * stages), microbatches - rounds * stages
        return low + (rest / stages * (seconds((rounds + 1) * stages) - low) if rest else 0.0), 0.0
    full, more = seconds(FULL_ROUNDS * stages), seconds((FULL_ROUNDS + 1) * stages)
    each = (more - full) / stages
    return full + (microbatches - FULL_ROUNDS * stages) * each, each


@lru_cache(maxsize=64)
def _schedule(stages: int, microbatches: int, turns: int) -> Schedule:
    return build_schedule(INTERLEAVED, stages, microbatches, stages_per_submesh=turns)
