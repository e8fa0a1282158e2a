"""Strategies on meshes of one to four axes, and the error when there would be too many."""

import itertools
import math
import random

import pytest

from alpa_explore.errors import OptionError
from alpa_explore.sharding.reshard import StepKind
from alpa_explore.sharding.rules.factors import from_factors
from alpa_explore.sharding.spec import PARTIAL, is_legal
from alpa_explore.sharding.strategy import Exchange, Split, enumerate_strategies


class Shaped:
    def __init__(self, *shape):
        self.shape = shape


X, Y, Z = Shaped(16, 16), Shaped(16, 16), Shaped(16, 16)
PRODUCT = from_factors("mk,kn->mn", (X, Y), (Z,))


def test_too_many_combinations_are_an_error_with_their_number():
    with pytest.raises(OptionError, match=r"262,144 combinations of 3 splits on a mesh of 9 axes"):
        enumerate_strategies(PRODUCT, [X.shape, Y.shape], [Z.shape], (2,) * 9, replicable=True)


def test_the_strategies_of_a_product_are_all_that_divide_evenly_whatever_is_cached():
    rng = random.Random(0)
    for _ in range(200):
        m, k, n = (rng.choice((2, 3, 4, 6, 8, 12, 16)) for _ in range(3))
        mesh = tuple(rng.choice((2, 3, 4, 6)) for _ in range(rng.randrange(1, 4)))
        shapes = (m, k), (k, n), (m, n)
        splits = from_factors("mk,kn->mn", (Shaped(m, k), Shaped(k, n)), (Shaped(m, n),))
        expected = {}
        for factors in itertools.product("-mkn", repeat=len(mesh)):
            specs = tuple(
                tuple(-1 if f == "-" else dims.find(f) if f in dims else PARTIAL if f == "k" else -1 for f in factors)
                for dims in ("mk", "kn", "mn")
            )
            if all(is_legal(spec, shape, mesh) for spec, shape in zip(specs, shapes, strict=True)):
                divided = math.prod(size for f, size in zip(factors, mesh, strict=True) if f != "-")
                expected[factors] = (*specs, 1.0 / divided)
        strategies = enumerate_strategies(splits, shapes[:2], shapes[2:], mesh, replicable=True)
        assert {s.factors: (*s.inputs, *s.outputs, s.work_share) for s in strategies} == expected


@pytest.mark.parametrize(
    ("kind", "expected"), [(StepKind.ALL_REDUCE, 512), (StepKind.RING, 512), (StepKind.ALL_TO_ALL, 256)]
)
def test_other_axes_divide_what_is_exchanged_and_an_all_to_all_is_sharded_on_its_own(kind, expected):
    rows = Split("rows", 16, (0,), (0,), (Exchange(kind, 1024, beside=True),))
    columns = Split("columns", 16, (1,), (1,))
    strategies = enumerate_strategies((rows, columns), [(16, 16)], [(16, 16)], (2, 2), replicable=False)
    (mixed,) = (s for s in strategies if s.factors == ("rows", "columns"))
    assert mixed.exchanges == ((Exchange(kind, expected, beside=True),), ())
    (alone,) = (s for s in strategies if s.factors == ("columns", "columns"))
    assert alone.exchanges == ((), ())
