"""Strategies on meshes of one to four axes, and where there would be too many."""

import itertools

import pytest

from alpa_explore.errors import OptionError
from alpa_explore.sharding.rules.factors import from_factors
from alpa_explore.sharding.spec import PARTIAL
from alpa_explore.sharding.strategy import enumerate_strategies


class Shaped:
    def __init__(self, *shape):
        self.shape = shape


X, Y, Z = Shaped(16, 16), Shaped(16, 16), Shaped(16, 16)
PRODUCT = from_factors("mk,kn->mn", (X, Y), (Z,))


@pytest.mark.parametrize("mesh", [(2,), (2, 2), (2, 2, 2), (2, 2, 2, 2)])
def test_a_product_takes_a_factor_on_every_axis(mesh):
    found = enumerate_strategies(PRODUCT, [X.shape, Y.shape], [Z.shape], mesh, replicable=False)
    assert {s.factors for s in found} == set(itertools.product("mkn", repeat=len(mesh)))
    for strategy in found:
        pending = sum(p == PARTIAL for p in strategy.outputs[0])
        assert pending == strategy.factors.count("k")
        assert strategy.work_share == 0.5 ** len(mesh)


def test_too_many_combinations_are_an_error_that_says_how_many():
    with pytest.raises(OptionError, match=r"262,144 combinations of 3 splits on a mesh of 9 axes"):
        enumerate_strategies(PRODUCT, [X.shape, Y.shape], [Z.shape], (2,) * 9, replicable=True)
