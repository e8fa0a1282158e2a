"""Frontiers come back from the cache as they were written, through JSON."""

import json
import math

from alpa_explore.intra_op.stage.stage_totals import StageTotals
from alpa_explore.pricing.cache_entries import dump, load
from alpa_explore.pricing.frontier import Frontier, StageChoice
from alpa_explore.pricing.stage_costs import Provenance


def totals(n):
    return StageTotals(
        microbatch_seconds=0.1 * n, iteration_seconds=0.2, weight_bytes=3.0, activation_bytes=4.0, workspace_bytes=5.0
    )


FRONTIERS = {
    (0, 1): Frontier(
        points=(
            StageChoice((), totals(1), Provenance.NEAR, ((1, 2), (3,))),
            StageChoice((), totals(2), Provenance.FITTING, ((3,), (3,))),
        ),
        solves=2,
        variables=30,
        constraints=40,
        optimal=True,
        bound_seconds=0.1,
        proven=True,
        least_peaks=(6.5, 7.5),
        bounds_within=((2, 0.3), (3, 0.4)),
    ),
    (1, 1): Frontier((StageChoice((4, 5), totals(3), Provenance.EXACT),), 1, 2, 3, False, 0.0, False),
    (2, 2): Frontier((), 1, 0, 0, True, math.inf, True),
}


def test_frontiers_come_back_as_they_were_written():
    again = load(json.loads(json.dumps(dump(FRONTIERS))))
    assert again == FRONTIERS
    provenance = [[p.provenance for p in frontier.points] for frontier in again.values()]
    assert provenance == [[p.provenance for p in frontier.points] for frontier in FRONTIERS.values()]


def test_a_choice_of_a_block_that_several_points_share_is_written_once():
    assert dump(FRONTIERS)["choices"] == [(1, 2), (3,)]
