"""The whole set: four models, 3 and 4 stages on unequal submeshes, plans of every kind, B of 1 to 8."""

from __future__ import annotations

import pytest

from alpa_explore.programs.check import check
from alpa_explore.programs.lowering.transforms import divided
from tests.programs.cases import Case, at_random

MODELS = ["gpt-tiny", "moe-tiny", "wide-resnet-tiny", "llama-tiny"]
ONE, TWO, FOUR = (), (2,), (2, 2)
PLANS = [
    ([((0, 0), ONE), ((1, 2), TWO), ((3, 3), ONE)], ("data",), 1),
    ([((0, 0), ONE), ((1, 2), TWO), ((3, 3), ONE)], ("zero",), 3),
    ([((0, 0), ONE), ((1, 2), TWO), ((3, 3), ONE)], ("tensor",), 5),
    ([((0, 0), TWO), ((1, 1), ONE), ((2, 2), FOUR), ((3, 3), ONE)], ("zero", "tensor"), 8),
]
"""Layers and mesh of each stage; what each axis does; B."""


@pytest.mark.sweep(kept=4)
@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("stages", "kinds", "microbatches"), PLANS, ids=[" ".join(p[1]) for p in PLANS])
def test_every_kind_of_parallelism_on_unequal_submeshes_equals_the_whole(model, stages, kinds, microbatches) -> None:
    case = Case(model, num_microbatches=microbatches)
    program = case.program(stages, lambda problem: divided(problem, kinds[: len(problem.model.mesh.shape)]))
    check(program)
    case.assert_equal(program)


def test_three_stages_that_share_a_weight_sum_its_gradients_in_one_order() -> None:
    """Else their copies differ in the last bits, which the interpreter refuses."""
    case = Case("three-times", num_layers=3)
    case.assert_equal(case.program([((k, k), ()) for k in range(3)], at_random(0)))
