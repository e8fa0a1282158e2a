"""The pipeline DP against brute force, and against the paper's pseudocode."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alpa_explore.errors import OptionError
from alpa_explore.inter_op.pipeline_dp import pipeline_dp
from tests.inter_op.reference import reference_dp, reference_with_memory


def random_problem(seed, *, max_layers=4, max_shapes=3, max_devices=6, levels=None, depth=None):
    """A table with holes; `levels` draws latencies from a few values, so that everything ties."""
    rng = np.random.default_rng(seed)
    layers = int(rng.integers(1, max_layers + 1))
    shapes = int(rng.integers(1, max_shapes + 1))
    places = layers if depth is None else min(depth, layers)
    devices_of = rng.integers(1, 4, shapes)
    total_devices = int(rng.integers(1, max_devices + 1))
    size = (layers, layers + 1, shapes, places)
    # Quarters are exact in binary: with them brute force may add in any order.
    latency = rng.integers(1, levels or 40, size) / 4
    if rng.random() < 0.5:
        latency = np.maximum.accumulate(latency, axis=3)
    latency[rng.random(size) < rng.choice([0.0, 0.2, 0.5])] = np.inf
    return latency, devices_of, total_devices


def brute_force(latency, devices_of, total_devices, num_microbatches):
    """Every cut of the layers × every sequence of shapes."""
    layers, _, shapes, places = latency.shape
    best = math.inf
    for depth in range(1, places + 1):
        for cuts in itertools.combinations(range(1, layers), depth - 1):
            bounds = (0, *cuts, layers)
            for chosen in itertools.product(range(shapes), repeat=depth):
                stages = [latency[bounds[n], bounds[n + 1], shape, depth - 1 - n] for n, shape in enumerate(chosen)]
                if sum(devices_of[shape] for shape in chosen) != total_devices or not np.isfinite(stages).all():
                    continue
                best = min(best, sum(stages) + (num_microbatches - 1) * max(stages))
    return best


def assert_consistent(result, latency, devices_of, total_devices, num_microbatches):
    """The stages cover the layers and the devices, and their latencies give the three figures."""
    assert [stage[0] for stage in result.stages] == [0, *(stage[1] for stage in result.stages[:-1])]
    assert result.stages[-1][1] == latency.shape[0]
    assert sum(devices_of[shape] for _, _, shape in result.stages) == total_devices
    paid = [
        latency[first, end, shape, len(result.stages) - 1 - n] for n, (first, end, shape) in enumerate(result.stages)
    ]
    total = 0.0
    for seconds in reversed(paid):
        total = seconds + total
    assert result.sum_latency_seconds == total
    assert result.t_max_seconds == max(paid)
    assert result.total_seconds == total + (num_microbatches - 1) * max(paid)


def test_equals_brute_force_on_hundreds_of_small_tables():
    feasible = 0
    for seed in range(600):
        latency, devices_of, total_devices = random_problem(seed, levels=5 if seed % 3 == 0 else None)
        num_microbatches = (1, 2, 3, 8, 100)[seed % 5]
        result = pipeline_dp(latency, devices_of, total_devices, num_microbatches)
        assert result.total_seconds == brute_force(latency, devices_of, total_devices, num_microbatches), seed
        if result.feasible:
            feasible += 1
            assert_consistent(result, latency, devices_of, total_devices, num_microbatches)
        else:
            assert result.stages == ()
    assert 200 < feasible < 600, "the tables should be of both kinds"


@pytest.mark.sweep(kept=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("levels", "seeds"), [(None, range(50)), (None, range(50, 150)), (4, range(50, 150)), (4, range(50))], ids=str
)
def test_equals_the_pseudocode_bit_for_bit_stages_included(levels, seeds):
    rng = np.random.default_rng(7)
    for seed in seeds:
        latency, devices_of, total_devices = random_problem(
            seed, max_layers=6, max_shapes=4, max_devices=8, levels=levels, depth=(None, 3)[seed % 2]
        )
        if levels is None:  # sums that round
            latency = latency * rng.uniform(0.9, 1.1, latency.shape)
        num_microbatches = (1, 2, 5, 64)[seed % 4]
        result = pipeline_dp(latency, devices_of, total_devices, num_microbatches)
        expected = reference_dp(latency, devices_of, total_devices, num_microbatches)
        assert result.total_seconds == expected.total_seconds, seed
        assert result.t_max_seconds == expected.t_max_seconds, seed
        assert result.sum_latency_seconds == expected.sum_latency_seconds, seed
        assert result.stages == expected.stages, seed


def test_equals_the_pseudocode_with_a_memory_limit():
    changed = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        layers, devices_of, total_devices = int(rng.integers(2, 6)), [1, 2, 4], 4
        costs = {
            (k, i, shape): (
                (i - k) * rng.uniform(0.8, 1.2) / devices**0.7,
                (i - k) * 4.0 / devices,
                (i - k) * rng.uniform(1, 2) / devices,
            )
            for k in range(layers)
            for i in range(k + 1, layers + 1)
            for shape, devices in enumerate(devices_of)
            if rng.random() < 0.95
        }
        limit = layers * rng.uniform(1.3, 2.5)
        latency = np.full((layers, layers + 1, 3, layers), np.inf)
        for (k, i, shape), (seconds, weight, activation) in costs.items():
            for s in range(1, layers + 1):
                if weight + s * activation <= limit:
                    latency[k, i, shape, s - 1] = seconds
        num_microbatches = (1, 4, 32)[seed % 3]
        result = pipeline_dp(latency, devices_of, total_devices, num_microbatches)
        expected = reference_with_memory(costs, devices_of, layers, total_devices, num_microbatches, limit)
        unlimited = reference_with_memory(costs, devices_of, layers, total_devices, num_microbatches, math.inf)
        assert result.total_seconds == expected.total_seconds, seed
        assert result.stages == expected.stages, seed
        changed += expected.stages != unlimited.stages
    assert changed > 20, "memory should have decided some of them"


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_equals_the_pseudocode_on_any_table(data):
    layers = data.draw(st.integers(1, 4))
    shapes = data.draw(st.integers(1, 3))
    values = st.sampled_from([0.0, 1e-9, 0.1, 0.2, 0.30000000000000004, 1.0, 3.0, 1e6, math.inf])
    size = layers * (layers + 1) * shapes * layers
    flat = data.draw(st.lists(values, min_size=size, max_size=size))
    latency = np.array(flat).reshape(layers, layers + 1, shapes, layers)
    devices_of = data.draw(st.lists(st.integers(1, 5), min_size=shapes, max_size=shapes))
    total_devices, num_microbatches = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 9))
    result = pipeline_dp(latency, devices_of, total_devices, num_microbatches)
    expected = reference_dp(latency, devices_of, total_devices, num_microbatches)
    assert (result.total_seconds, result.stages) == (expected.total_seconds, expected.stages)


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(12), range(12, 36)], ids=str)
def test_the_sweep_lists_every_candidate_and_is_true_for_each(seeds):
    for seed in seeds:
        latency, devices_of, total_devices = random_problem(seed, max_layers=5, max_shapes=4, max_devices=8)
        num_microbatches = (1, 3, 40)[seed % 3]
        result = pipeline_dp(latency, devices_of, total_devices, num_microbatches)
        upper = latency[np.triu(np.ones(latency.shape[:2], bool), 1)]
        assert [point.t_max_seconds for point in result.sweep] == np.unique(upper[np.isfinite(upper)]).tolist()
        evaluated = 0
        for point in result.sweep:
            allowed = np.where(latency <= point.t_max_seconds, latency, np.inf)
            least = reference_dp(allowed, devices_of, total_devices, 1).total_seconds
            total = least + (num_microbatches - 1) * point.t_max_seconds
            assert point.reason
            if point.pruned:
                assert point.iteration_seconds is None
                assert total >= result.total_seconds
            else:
                evaluated += 1
                assert point.iteration_seconds == (total if math.isfinite(total) else None)
        best = [point for point in result.sweep if point.reason.startswith("the best")]
        assert len(best) == int(result.feasible)
        if best:
            assert (best[0].t_max_seconds, best[0].iteration_seconds) == (result.t_max_seconds, result.total_seconds)
        assert evaluated <= 2 * result.evaluations


def test_no_partition_is_a_result_that_says_why_for_every_candidate():
    latency = np.full((2, 3, 1, 2), np.inf)
    latency[0, 2, 0] = [1.0, 2.0]
    result = pipeline_dp(latency, [1], 3, 4)
    assert (result.feasible, result.total_seconds, result.stages) == (False, math.inf, ())
    assert [point.iteration_seconds for point in result.sweep] == [None, None]
    assert all("no partition" in point.reason for point in result.sweep)


def test_the_table_given_is_left_as_it_was():
    latency, devices_of, total_devices = random_problem(3)
    before = latency.copy()
    pipeline_dp(latency, devices_of, total_devices, 4)
    assert np.array_equal(before, latency)


@pytest.mark.parametrize(("devices", "microbatches"), [(1, 0), (1, -3), (0, 1)])
def test_no_microbatches_or_no_devices_is_an_option_error(devices, microbatches):
    with pytest.raises(OptionError):
        pipeline_dp(np.ones((1, 2, 1, 1)), [1], devices, microbatches)
