"""The pipeline DP on devices of two and three kinds, against all partitions."""

import itertools
import math

import numpy as np
import pytest

from alpa_explore.inter_op.pipeline_dp import pipeline_dp
from alpa_explore.inter_op.stage_table import encoded


def least(latency, shapes, totals, b):
    """The least T over every cut into stages and every choice of submeshes that uses all devices of each kind."""
    layers, best = latency.shape[0], math.inf
    for depth in range(1, layers + 1):
        for cuts in itertools.combinations(range(1, layers), depth - 1):
            ends = (*cuts, layers)
            ranges = tuple(zip((0, *cuts), ends, strict=True))
            for chosen in itertools.product(range(len(shapes)), repeat=depth):
                used = [0] * len(totals)
                for shape in chosen:
                    used[shapes[shape][0]] += shapes[shape][1]
                if used != list(totals):
                    continue
                times = [
                    latency[first, end, shape, depth - 1 - place]
                    for place, ((first, end), shape) in enumerate(zip(ranges, chosen, strict=True))
                ]
                if math.isfinite(sum(times)):
                    best = min(best, sum(times) + (b - 1) * max(times))
    return best


@pytest.mark.parametrize("seed", range(12))
def test_the_best_pipeline_uses_all_devices_of_every_kind(seed):
    rng = np.random.default_rng(seed)
    layers = int(rng.integers(2, 6))
    totals = [int(rng.integers(1, 5)) for _ in range(rng.integers(2, 4))]
    shapes = [(kind, size) for kind, total in enumerate(totals) for size in (1, 2, 4) if size <= total]
    latency = rng.random((layers, layers + 1, len(shapes), layers)) + 0.1
    latency[rng.random(latency.shape) < 0.2] = np.inf
    b = int(rng.integers(1, 9))
    numbers, whole, outside = encoded(shapes, totals)
    found = pipeline_dp(latency, numbers, whole, b, outside=outside)
    expected = least(latency, shapes, totals, b)
    assert found.feasible == math.isfinite(expected)
    if found.feasible:
        assert found.total_seconds == pytest.approx(expected, rel=1e-12)
        for kind, total in enumerate(totals):
            assert sum(shapes[s][1] for _, _, s in found.stages if shapes[s][0] == kind) == total


def test_a_submesh_of_one_kind_never_stands_for_devices_of_another():
    """Two stages of kind 0 with twice its devices would carry into kind 1 if bases were D + 1."""
    latency = np.full((3, 4, 3, 3), np.inf)
    shapes, totals = [(0, 1), (0, 2), (1, 1)], [2, 2]
    latency[..., 1, :] = 1.0
    latency[..., 2, :] = 100.0
    numbers, whole, outside = encoded(shapes, totals)
    found = pipeline_dp(latency, numbers, whole, 1, outside=outside)
    assert sorted(shapes[s] for _, _, s in found.stages) == [(0, 2), (1, 1), (1, 1)]
