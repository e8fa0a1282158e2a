"""Specs: notation, legality, local shapes."""

import itertools
import random

from alpa_explore.sharding.spec import PARTIAL, REPLICATE, is_legal, legal_specs, local_shape, render


def test_specs_are_written_in_the_notation_of_alpa():
    assert render((0, REPLICATE), 2) == "S0R"
    assert render((REPLICATE, 0), 2) == "S1R"
    assert render((1, 1), 3) == "RS01R"
    assert render((0, PARTIAL), 2) == "S0R+P1"
    assert render((PARTIAL, PARTIAL), 0) == "·+P01"
    assert render((), 1) == "R"


def test_a_dim_must_divide_evenly():
    assert is_legal((0, 0), (8, 3), (2, 4))
    assert not is_legal((0, 0), (4, 3), (2, 4))
    assert not is_legal((1, REPLICATE), (8, 3), (2, 4))
    assert not is_legal((2, REPLICATE), (8, 3), (2, 4))
    assert local_shape((0, 1), (8, 12), (2, 4)) == (4, 3)


def test_legal_specs_are_those_of_all_that_divide_evenly():
    rng = random.Random(0)
    for _ in range(200):
        shape = tuple(rng.choice((1, 2, 3, 4, 6, 8, 12)) for _ in range(rng.randrange(4)))
        mesh = tuple(rng.choice((2, 3, 4, 6)) for _ in range(rng.randrange(4)))
        for partial in (False, True):
            placements = [REPLICATE, *range(len(shape)), *([PARTIAL] * partial)]
            every = itertools.product(placements, repeat=len(mesh))
            assert legal_specs(shape, mesh, partial=partial) == tuple(s for s in every if is_legal(s, shape, mesh))
