"""Routed experts under the interpreter: every way to divide them gives the gradients of one process."""

import pytest

from tests.programs.cases import Case, dividing, optimal

PRODUCTS = (
    ("tokens",),
    ("experts",),
    ("inner",),
    ("exchange",),
    ("tokens", "experts"),
    ("experts", "tokens"),
    ("experts", "inner"),
    ("inner", "tokens"),
    ("experts", "experts"),
    ("tokens", "exchange"),
    ("exchange", "tokens"),
    ("exchange", "inner"),
    ("exchange", "exchange"),
)


@pytest.mark.parametrize("factors", PRODUCTS, ids="·".join)
def test_every_division_of_the_experts_equals_the_whole(factors):
    mesh = (4,) if len(factors) == 1 else (2, 2)
    case = Case("routed-experts", num_microbatches=2)
    case.assert_equal(case.program([((0, 3), mesh)], dividing(*factors)))


def test_the_best_strategies_equal_the_whole():
    case = Case("routed-experts", num_microbatches=2)
    case.assert_equal(case.program([((0, 1), (2,)), ((2, 3), (2,))], optimal))
