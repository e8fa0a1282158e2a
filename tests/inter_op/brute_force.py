"""The options of the pipeline, by brute force over every partition of random stage costs."""

import itertools
import math
from functools import partial

import numpy as np
import pytest

from alpa_explore.cluster import Cluster, logical_meshes, submeshes
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.inter_op.stage_table import best_pipeline
from alpa_explore.pricing.stage_costs import StageCandidate, StageCosts

paper = partial(PipelineOptions, paper=True)
"""Options in the paper's mode: what counts beside a stage's own time is asked for."""
CLUSTERS = ("1x4:v100", "2x2:v100", "4x1:v100", "3x2:v100")


def random_costs(seed):
    memory = (30, 45, 60, 100)[seed // 12 % 4]
    rng = np.random.default_rng(seed)
    cluster = Cluster.parse(CLUSTERS[seed % len(CLUSTERS)])
    pieces = submeshes(cluster)
    layers = int(rng.integers(2, 6))
    work = rng.integers(1, 9, layers)
    candidates = {}
    for first, last in itertools.combinations_with_replacement(range(layers), 2):
        for place, piece in enumerate(pieces):
            flops, mesh = int(work[first : last + 1].sum()), logical_meshes(cluster, piece)[0]
            candidates[first, last, place] = tuple(
                StageCandidate(
                    logical_mesh=mesh,
                    microbatch_seconds=flops / piece.devices**0.8 * slow * float(rng.uniform(1, 1.2)),
                    iteration_seconds=float(rng.uniform(0, 1)),
                    weight_bytes=20.0 * (last - first + 1) / piece.devices,
                    activation_bytes=float(rng.uniform(5, 20)) / slow**4 / piece.devices,
                    workspace_bytes=1.0,
                    solution_key=f"{first}-{last}-{place}-{slow}",
                )
                for slow in (1.0, 1.3)
            )
    received = {key: float(rng.uniform(0, 3e10)) for key in itertools.combinations_with_replacement(range(layers), 2)}
    costs = StageCosts(
        num_layers=layers,
        submeshes=pieces,
        device_memory_bytes=memory,
        candidates=candidates,
        layer_flops=tuple(int(w) for w in work),
        received_bytes=received,
    )
    return costs, cluster


def partitions(costs, cluster):
    """Every list of (first, last, submesh) that covers the layers and uses all devices."""
    layers = costs.num_layers
    for depth in range(1, layers + 1):
        for cuts in itertools.combinations(range(1, layers), depth - 1):
            bounds = (0, *cuts, layers)
            for shapes in itertools.product(range(len(costs.submeshes)), repeat=depth):
                if sum(costs.submeshes[m].devices for m in shapes) == cluster.devices:
                    yield [(bounds[i], bounds[i + 1] - 1, m) for i, m in enumerate(shapes)]


def brute_force(
    costs,
    cluster,
    b,
    *,
    allowed=lambda stages: True,
    held=None,
    extra=lambda stage: 0.0,
    bubble=1,
    more_rounds=lambda depth: 0.0,
    once=lambda stages: 0.0,
):
    """The least Σt / bubble + (B − 1/bubble + more_rounds)·max t + once; `held` is of (place from the end, stages)."""
    best = math.inf
    for stages in partitions(costs, cluster):
        if not allowed(stages):
            continue
        paid = []
        for index, stage in enumerate(stages):
            place = len(stages) - index
            found = costs.choose(stage, min(place, b) if held is None else held(place, len(stages)), b)
            paid.append(math.inf if found is None else found.latency_seconds(b) + extra(stage))
        rounds = b - 1 / bubble + more_rounds(len(stages))
        best = min(best, sum(paid) / bubble + rounds * max(paid) + once(stages))
    return best


def check(
    options_of, brute_options, seeds=range(60), changed_at_least=10, *, counts=(1, 4, 30), change=lambda costs: costs
):
    """Compares the DP with brute force under options drawn from each case; some must change the plan. `counts` are the
    numbers of microbatches in turn, `change` what the costs become. Returns how many plans have other stages."""
    changed = feasible = restaged = 0
    for seed in seeds:
        costs, cluster = random_costs(seed)
        costs, b = change(costs), counts[seed % len(counts)]
        rng = np.random.default_rng(1000 + seed)
        options = options_of(costs, cluster, rng)
        found = best_pipeline(costs, cluster, options, b)
        expected = brute_force(costs, cluster, b, **brute_options(options, costs, cluster, b))
        assert found.total_seconds == pytest.approx(expected, rel=1e-12), (seed, options)
        of_paper = best_pipeline(costs, cluster, paper(), b)
        changed += found.stages != of_paper.stages or found.total_seconds != of_paper.total_seconds
        restaged += found.stages != of_paper.stages
        feasible += found.feasible
    assert changed >= changed_at_least
    assert feasible >= changed_at_least
    return restaged
