"""A timeline says of every choice what the limit says, and charges for what a choice holds above the least."""

import itertools

import numpy as np
import pytest

from alpa_explore.intra_op.problem.memory_limit import Item, MemoryLimit
from alpa_explore.intra_op.problem.timeline import timeline


def random_limit(rng, sizes):
    """Items at up to nine times, some nodes with several, some with none, beside bytes that every choice holds."""
    items = []
    for v, size in enumerate(sizes):
        for _ in range(int(rng.integers(0, 4))):
            start, end = sorted(rng.integers(0, 10, 2).tolist())
            items.append(Item(node=v, start=start, end=end, usage=rng.integers(0, 9, size) * 1.0))
    return MemoryLimit(items=tuple(items), limit=float(rng.integers(1, 40)), fixed_bytes=rng.integers(0, 5, 9) * 1.0)


def test_a_choice_fits_on_the_timeline_where_the_limit_allows_it():
    rng = np.random.default_rng(1)
    fitting = exceeding = 0
    for _ in range(200):
        sizes = rng.integers(1, 4, 4).tolist()
        memory = random_limit(rng, sizes)
        times = timeline(memory, sizes)
        for choices in itertools.product(*map(range, sizes)):
            above = float((times.held(choices) - times.room).max())
            assert (above <= 0) == memory.allows(choices)
            if above > 0:
                assert above == pytest.approx(memory.peak(choices) - memory.limit)
            fitting, exceeding = fitting + (above <= 0), exceeding + (above > 0)
    assert min(fitting, exceeding) > 500


def test_prices_charge_every_strategy_for_what_it_holds():
    rng = np.random.default_rng(2)
    charged = 0
    for _ in range(50):
        sizes = rng.integers(1, 4, 4).tolist()
        times = timeline(random_limit(rng, sizes), sizes)
        prices = rng.random(len(times.room))
        costs = times.memory_costs(prices, sum(sizes))
        starts = np.cumsum([0, *sizes[:-1]])
        for choices in itertools.product(*map(range, sizes)):
            assert costs[starts + choices].sum() == pytest.approx(prices @ times.held(choices))
        charged += bool(costs.any())
    assert charged > 30
