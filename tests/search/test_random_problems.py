"""On random small problems every way to a plan leads to the best one, by brute force over exact costs of stages."""

import math

import pytest

import alpa_explore as ax
from alpa_explore.errors import InfeasiblePlanError
from alpa_explore.execution.executors import Executor
from alpa_explore.planner.default_layering import clustered
from alpa_explore.pricing import tuning
from alpa_explore.pricing.tuning import TOLERANCE
from alpa_explore.search import profile_stages
from alpa_explore.search.library import SolveContext
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.search.profile_stages import profile_wanted, unpriced_stages
from tests.search.random_problems import ExactCosts, random_problem


def planned(problem, b, memory=None, **options):
    """The plan, or None where nothing fits."""
    try:
        return ax.plan(
            problem.graph,
            problem.with_memory(memory),
            num_microbatches=b,
            num_layers=problem.layers,
            delta=problem.deltas[0],
            pipeline=problem.options,
            rematerialization=problem.rematerialization,
            scheduler="serial",
            **options,
        )
    except InfeasiblePlanError:
        return None


def on_demand(problem, b, memory):
    """Seconds of the plan with the other delta; None where the whole planner is asked."""
    query = PipelineQuery(cluster=problem.with_memory(memory), options=problem.options, num_microbatches=b)
    layering = clustered(problem.graph, problem.layers, problem.deltas[1])
    versions, flops = ExactCosts(problem, problem.deltas[1]).versions, tuple(layer.flops for layer in layering.layers)
    solving = SolveContext(solver="auto", executor=Executor("serial"), store=None)
    _, profile = profile_wanted(unpriced_stages(versions, query, solving, layer_flops=flops))
    return None if profile is None else query.best(profile.costs).total_seconds


@pytest.mark.sweep(kept=6)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300))
def test_every_way_leads_to_the_best_plan(seed, tmp_path, monkeypatch) -> None:
    """Anew, with bounds first, for another B with less memory from the cache, and for another delta."""
    monkeypatch.setenv("ALPA_EXPLORE_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning, "FITTING_SECONDS", 1000.0)  # a busy machine is no reason for a worse plan
    problem = random_problem(seed)
    (b, other), exact = problem.counts, ExactCosts(problem, problem.deltas[0])
    roomy = planned(problem, b)
    full = max(stage.peak_bytes for stage in roomy.stages)
    memory, less = (int(share * full) for share in problem.rooms)
    found = {
        "anew": (planned(problem, b, memory), exact.best(b, memory)),
        "another B, less memory": (planned(problem, other, less), exact.best(other, less)),
    }
    with monkeypatch.context() as few:
        few.setattr(profile_stages, "DEVICES_WORTH_BOUNDS", 1)
        found["bounds first"] = planned(problem, b, memory, cache=False), found["anew"][1]
    seconds = {way: (math.inf if p is None else p.predicted.iteration_seconds, t) for way, (p, t) in found.items()}
    exact = ExactCosts(problem, problem.deltas[1])
    for way, count, room in (("same B", b, memory), ("another B", other, memory), ("less memory", other, less)):
        t = on_demand(problem, count, room)
        seconds |= {} if t is None else {f"another delta, {way}": (t, exact.best(count, room))}
    for way, (t, least) in seconds.items():
        assert t == least or least * (1 - 1e-9) <= t <= least * (1 + TOLERANCE), (way, t, least)
