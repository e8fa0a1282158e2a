"""What is in doubt: counted over again from the words of the definition, on random frontiers."""

import math
import random
from dataclasses import fields
from types import SimpleNamespace

from alpa_explore.intra_op.stage.stage_problem import StageTotals
from alpa_explore.pricing.frontier import Frontier, StageChoice
from alpa_explore.pricing.stage_tasks import Search
from alpa_explore.search.convergence import Known

MEMORY, INVERSE_B, COUNTS = 10.0, 0.25, range(1, 7)


def _frontier(rng):
    names = [field.name for field in fields(StageTotals)]
    points = tuple(
        StageChoice((n,), StageTotals(**{name: rng.uniform(0, 4) for name in names}))
        for n in range(rng.choice((0, 1, 2, 4)))
    )
    least = tuple(rng.uniform(0, 14) + held for held in COUNTS) if rng.random() < 0.7 else ()
    return Frontier(points, 1, 10, 10, True, rng.uniform(0, 2), proven=rng.random() < 0.7, least_peaks=least)


def _seconds(point):
    return point.totals.microbatch_seconds + point.totals.iteration_seconds * INVERSE_B


def _bytes(point, held):
    return point.totals.weight_bytes + held * point.totals.activation_bytes + point.totals.workspace_bytes


def _wanted(frontiers, held):
    """Of frontiers by key: what is not proven and may fit, and where the fastest overflows but another may fit; of
    these what could be better than the best that fits."""
    doubted, best = {}, math.inf
    for key, f in frontiers.items():
        least = f.least_peaks[held - 1] if f.least_peaks else 0.0
        quickest = min(f.points, key=_seconds, default=None)
        best = min([best, *(_seconds(p) for p in f.points if _bytes(p, held) <= MEMORY)])
        if least > MEMORY:
            continue
        if not f.proven:
            doubted[key] = f.bound_seconds, Search.FASTEST
        elif quickest is not None and _bytes(quickest, held) > MEMORY:
            doubted[key] = _seconds(quickest), Search.FITTING
    return {key: doubt for key, doubt in doubted.items() if doubt[0] < best}


def test_in_doubt_is_what_could_be_better_than_the_best_that_fits():
    rng, in_doubt, in_none = random.Random(0), 0, 0
    task = SimpleNamespace(device=SimpleNamespace(memory_bytes=MEMORY), inverse_b=INVERSE_B, least_held=1, held=6)
    for _ in range(300):
        frontiers = {key: _frontier(rng) for key in "abc"[: rng.randrange(1, 4)]}
        known = Known(dict.fromkeys(frontiers, task), {key: [f] for key, f in frontiers.items()}, composed=())
        found = known.doubts(frontiers, COUNTS)
        for held in COUNTS:
            wanted = _wanted(frontiers, held)
            assert {key: (bound, search) for key, bound, search in found.get(held, ())} == wanted
            in_doubt, in_none = in_doubt + bool(wanted), in_none + (not wanted)
    assert min(in_doubt, in_none) > 100, "both are met often"
