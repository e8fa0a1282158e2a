"""Minima in vector registers: against numpy, to the last bit, for every width of a row."""

import itertools

import numpy as np
import pytest

from alpa_explore.intra_op.composition.contraction import kernels


@pytest.mark.parametrize("by", ["interpreted", "dispatcher"])
@pytest.mark.parametrize("width", [1, 3, 4, 5, 7, 8, 9, 12, 15, 16, 24, 25, 31, 33, 64, 577])
def test_minima_of_sums_are_those_of_numpy(width, by):
    for count, tables in itertools.product((1, 2, 5, 24), (1, 2, 3)):
        check_minima(width, count, tables, getattr(kernels.minimise_into, by))


def check_minima(width, count, tables, minimise_into):
    rng = np.random.default_rng(width * count)
    row, bases, memory = rng.random(width) + 0.5, rng.random(count), rng.random(5000 + 3 * count * width)
    memory[rng.random(len(memory)) < 0.1] = np.inf
    at, steps = (2, 1000, 4000)[:tables], (width, width + 3, 2 * width)[:tables]
    sums = bases[:, None]
    for place, step in zip(at, steps, strict=True):
        sums = sums + memory[(place + step * np.arange(count))[:, None] + np.arange(width)]
    expected = np.minimum(row, sums.min(axis=0))
    minimise_into(row, bases, (memory,) * tables, at, steps)
    assert row.tolist() == expected.tolist(), (count, tables)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_extending_leaves_out_no_state_that_attains_a_minimum(seed):
    rng = np.random.default_rng(seed)
    prices, rows, states, others, pivots = 2, 3, int(rng.integers(35, 90)), int(rng.integers(35, 90)), 3
    # States that differ by little, and some equal ones: bounds by pivots are tight.
    table = rng.integers(0, 9, (prices, states, 1)) + rng.choice([0.0, 0.5, 1.0], (prices, states, others)) / 3
    table[rng.random(table.shape) < rng.choice([0.0, 0.3])] = np.inf
    known, excess = np.full((prices, pivots), -1), np.empty((prices, pivots, states))
    for _ in range(6):
        costs = rng.integers(0, 9, (prices, rows, states)) / 7 + rng.choice([0.0, 1e-15], (prices, rows, states))
        costs[rng.random(costs.shape) < rng.choice([0.0, 0.2, 1.0], p=[0.5, 0.4, 0.1])] = np.inf
        extended = np.empty((prices, rows, others))
        kernels.extend.dispatcher(costs, table, known, excess, extended)
        assert extended.tolist() == (costs[..., None] + table[:, None]).min(axis=2).tolist()
    assert (known >= 0).any()
