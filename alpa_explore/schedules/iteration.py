"""What an iteration takes, of any number of microbatches.

Once a pipeline is full, each further round of P microbatches on its P submeshes takes the same time: so a few are
simulated. Under 1F1B whose stages wait for all that they send it is a formula, with t = f + b the seconds of a
microbatch in a stage, and u those of its update:

    Σ t_i + (B − 1) · max t_i + max (u_i − Σ_{j<i} b_j)

as late stages update while the backward pass goes on to the first. That is exact where the last backward pass goes on
without waits; else it is longer than what is simulated, by 0.2 % at most where the last stage is 1.5 times as long.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from alpa_explore.schedules.catalog import INTERLEAVED, build_schedule
from alpa_explore.schedules.simulator.simulate import simulate
from alpa_explore.schedules.simulator.times import Links, StageTimes
from alpa_explore.schedules.task import Schedule

FULL_ROUNDS = 3
"""Rounds of P microbatches after which every further one takes the same time: within 1 % where the first or the last
part is 1.3 or 2.5 times as long as the others, and mostly exactly (2 rounds: within 6 %)."""


def iteration_seconds(
    name: str, times: Sequence[StageTimes], submeshes: int, microbatches: int, links: Links | None = None
) -> tuple[int, float, float]:
    """(a number of microbatches, the seconds of an iteration of so many, the seconds of each further one up to
    `microbatches`) of a schedule of the catalogue with these times of its stages.

    An interleaved schedule has whole rounds alone; of another number it takes what lies between two of them.
    """
    if name == "1f1b" and not any(t.send_forward_seconds or t.send_backward_seconds for t in times):
        drained = accumulate((t.backward_seconds for t in times[:-1]), initial=0.0)
        updating = max(t.update_seconds - after for t, after in zip(times, drained, strict=True))
        latency = [t.microbatch_seconds for t in times]
        return 1, sum(latency) + updating, max(latency)

    def simulated(count: int) -> float:
        table = _schedule(name, submeshes, count, len(times) // submeshes)
        return simulate(table, times, links).makespan_seconds

    full = FULL_ROUNDS * submeshes
    if microbatches >= full:
        at_full = simulated(full)
        return full, at_full, (simulated(full + submeshes) - at_full) / submeshes
    rounds = max(microbatches // submeshes, 1)
    low, rest = rounds * submeshes, microbatches - rounds * submeshes
    if name != INTERLEAVED or not rest:
        return microbatches, simulated(microbatches), 0.0
    at_low = simulated(low)
    return low, at_low, (simulated(low + submeshes) - at_low) / submeshes


@lru_cache(maxsize=64)
def _schedule(name: str, submeshes: int, microbatches: int, turns: int) -> Schedule:
    return build_schedule(name, submeshes, microbatches, stages_per_submesh=turns if name == INTERLEAVED else None)
