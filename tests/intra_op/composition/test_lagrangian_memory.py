"""Choices of composed ranges that fit in memory: what they cost, and the bounds, against exact solves."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

from alpa_explore.intra_op.composition.block_subproblem import Price
from alpa_explore.intra_op.composition.compose import Composer, whole_choice
from alpa_explore.intra_op.composition.lagrangian_memory import fastest_within_memory
from alpa_explore.intra_op.solve_limited import solve_limited
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.intra_op.stage.stage_problem import build_stage_problem
from tests.intra_op.composition.test_compose import CHAINS, on

INVERSE_B = 0.25
COUNTS = (1, 2, 4)


CASES = (
    ("mlp", 0.3, 99),
    ("mlp, specs forbidden", 0.3, 99),
    ("wide-resnet-tiny", 0.02, 2),
    ("wide-resnet-tiny", 0.7, 3),
    ("gpt-tiny", 0.3, 1),
    ("gpt-tiny, cut anywhere 1", 0.3, 1),
)


@pytest.mark.parametrize(("name", "share", "most_ranges"), CASES, ids=str)
def test_the_optimum_within_memory_lies_between_the_bound_and_the_choice(
    name: str, share: float, most_ranges: int
) -> None:
    """The limit lies at a `share` of the way from what the leanest choice holds to what the fastest does."""
    chain, model = CHAINS[name](), on((1, 2))
    stage_of = slice_stages(chain.layered)
    composer = Composer(chain, stage_of, model)
    ranges = list(combinations_with_replacement(range(chain.layered.num_layers), 2))[::2][:most_ranges]
    found = 0
    for r in ranges:
        problem = build_stage_problem(stage_of(*r), model)
        ends = [found.get(r) for found in composer.solve([r], [Price(INVERSE_B, price, 2) for price in (0.0, 1e3)])]
        if ends[0] is None or ends[1] is None:
            continue
        least, most = sorted(e.totals.peak_bytes(2) for e in ends if e is not None)
        limit = least + share * (most - least)
        for held, now in fastest_within_memory(
            composer, r, counts=COUNTS, limit=limit, inverse_b=INVERSE_B, gap=1e-4
        ).items():
            priced = problem.at(inverse_b=INVERSE_B, memory_price=0.0, microbatches_held=held)
            memory = problem.memory_limit(held, limit)
            if memory.least_peak() > limit:
                assert now.best is None
                continue
            exact = solve_limited(priced, memory)
            if not exact.choices:
                assert now.best is None
                continue
            assert now.bound <= exact.objective * (1 + 1e-9)
            if now.best is not None:
                found += 1
                choices = whole_choice(chain, problem, now.best.block_choices)
                assert memory.allows(choices)
                assert priced.evaluate(choices) == pytest.approx(now.best.cost, rel=1e-9)
                assert now.best.cost >= exact.objective * (1 - 1e-9)
    assert found
