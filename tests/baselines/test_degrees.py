"""The degrees of a baseline are searched together: never worse than with the same kind's degrees given."""

import itertools
import math
import random
from contextlib import suppress

import pytest

import alpa_explore as ax
from alpa_explore.baselines.kinds import takes
from alpa_explore.errors import InfeasiblePlanError, OptionError
from tests.programs.cases import captured

MODELS = ("llama of 2", "gpt of 2", "tied llama of 1", "routed-experts", "mlp-tiny")
CLUSTERS = ("1x4:h100", "2x2:h100", "1x8:h100", "2x4:a100-40gb", "1x6:h100@torchtitan", "4x2:v100")
KINDS = ("megatron", "3d", "5d", "fsdp+tp+pp", "hsdp", "fsdp")


def seconds(graph, cluster, kind, **degrees):
    """Of an iteration; infinite where there is no such pipeline, or where it does not fit."""
    try:
        plan = ax.baseline(graph, cluster, kind, num_microbatches=2, num_layers=2, delta=1.0, **degrees)
    except (OptionError, InfeasiblePlanError):
        return math.inf
    return plan.predicted.iteration_seconds


def every_degree(kind, devices):
    """All degrees that a baseline tries where they are not given, whose product of tp, cp, dp and pp is the cluster's
    devices. The ZeRO stage is the software's, and parts of the model are not interleaved, unless they are given."""
    names = [name for name in takes(kind) if name not in ("zero", "chunks")]
    divisors = [n for n in range(1, devices + 1) if devices % n == 0]
    for values in itertools.product(divisors, repeat=len(names)):
        degrees = dict(zip(names, values, strict=True))
        held = math.prod(degrees.get(name, 1) for name in ("tp", "cp", "dp", "pp"))
        if held == devices or "dp" not in names:
            yield degrees


def assert_never_worse(seed):
    draw = random.Random(seed)
    model, text, kind = draw.choice(MODELS), draw.choice(CLUSTERS), draw.choice(KINDS)
    graph, cluster = captured(model, draw.choice((1, 2, 4, 8)), 0, ())[0], ax.Cluster.parse(text)
    if draw.random() < 0.3:  # little memory: some of the pipelines do not fit
        with suppress(OptionError, InfeasiblePlanError):
            plan = ax.baseline(graph, cluster, kind, num_microbatches=2, num_layers=2, delta=1.0)
            peak = max(s.peak_bytes for s in plan.stages)
            cluster = cluster.with_changes(memory_bytes=int(peak * draw.uniform(0.8, 1.0)))
    given = {str(degrees): seconds(graph, cluster, kind, **degrees) for degrees in every_degree(kind, cluster.devices)}
    found = seconds(graph, cluster, kind)
    best = min(given, key=given.__getitem__)
    assert found == pytest.approx(given[best], rel=1e-9), f"{kind} of {model} on {text}: {best}"


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [13, *range(13)])
def test_the_search_finds_the_best_of_all_degrees(seed) -> None:
    assert_never_worse(seed)


@pytest.mark.slow
def test_the_search_tries_replicas_and_experts_beside_context_parallelism() -> None:
    """Meshes of four axes: replicas, shards, experts and context."""
    graph, free = captured("routed-experts", 8, 0, ())[0], {"tp": 1, "pp": 1, "ep": 2}
    given = {r: seconds(graph, "2x8:h100", "fsdp+tp+pp", **free, dp=8, cp=2, replicas=r) for r in (1, 2, 4, 8)}
    assert given[2] < math.inf, "2 replicas of 4 shards, 2 of them with different experts"
    found = seconds(graph, "2x8:h100", "fsdp+tp+pp", **free)
    assert found == pytest.approx(min(given.values()), rel=1e-9)
