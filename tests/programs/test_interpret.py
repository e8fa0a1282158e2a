"""A program under the interpreter equals the sequential graph: loss, every gradient, every updated parameter."""

from __future__ import annotations

import pytest

from tests.programs.cases import Case, at_random, optimal

MODELS = ["mlp-tiny", "gpt-tiny", "moe-tiny", "wide-resnet-tiny"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("mesh", [(2,), (2, 2)])
def test_a_stage_with_its_best_strategies_equals_the_whole(model, mesh) -> None:
    case = Case(model)
    case.assert_equal(case.program([((0, case.num_layers - 1), mesh)], optimal))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(3))
def test_a_stage_with_random_strategies_equals_the_whole(model, seed) -> None:
    case = Case(model)
    case.assert_equal(case.program([((0, case.num_layers - 1), (2, 2))], at_random(seed)))
