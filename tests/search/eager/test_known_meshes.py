"""What the cache knows of a mesh from another B or another memory: bounds hold, and plans are those without a cache."""

import random
from dataclasses import replace
from itertools import combinations

import pytest

import alpa_explore as ax
from alpa_explore.cluster import logical_meshes, submeshes
from alpa_explore.errors import InfeasiblePlanError
from alpa_explore.execution.executors import Executor
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.layering import cluster_operators
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.pricing import tuning
from alpa_explore.pricing.frontier import added
from alpa_explore.pricing.mesh_tasks import MeshTask, compose_mesh, fastest_at_b, fastest_on_mesh
from alpa_explore.pricing.stage_costs import Provenance
from alpa_explore.pricing.tuning import SMALLEST_INVERSE_B, TIE_SECONDS, TOLERANCE
from alpa_explore.search.eager.eager_pricing import EagerPricing, SolveContext
from alpa_explore.search.eager.known_meshes import KnownMeshes, at_inverse_b, chord, where_attained
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.store.cache import SolveCache

CLUSTER, LAYERS = "1x4:v100", 4


@pytest.fixture(scope="module")
def graph():
    return microbatch_graph("gpt-tiny", 8)


def _layered(graph):
    return assign_layers(graph, cluster_operators(graph, LAYERS, delta=2.0).layer_of_forward)


def _task(mesh, device, inverse_b):
    ranges = tuple(((first, last), LAYERS) for first in range(LAYERS) for last in range(first, LAYERS))
    return MeshTask(ranges=ranges, least_held=1, mesh=mesh, device=device, inverse_b=inverse_b)


def test_a_chord_is_below_every_rising_concave_function_and_unknown_below_its_points():
    rng = random.Random(0)
    for _ in range(200):
        lines = [(rng.uniform(0, 5), rng.uniform(0, 5)) for _ in range(rng.randrange(1, 6))]
        at = sorted(rng.uniform(0, 1) for _ in range(rng.randrange(2, 6)))

        def least(x, lines=lines):
            return min(a + b * x for a, b in lines)

        optima = tuple((x, least(x)) for x in at)
        for x in (*at, at[-1] + 0.1, 2.0, *(rng.uniform(at[0], at[-1]) for _ in range(5))):
            assert chord(optima, x) <= least(x) * (1 + 1e-12)
        assert all(chord(optima, x) == pytest.approx(seconds) for x, seconds in optima)
        assert chord(optima, at[0] - 0.1) is None
    assert chord((), 0.5) is None


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("memory", "count"), [(2_600_000, 8), (1_700_000, 1), (1_700_000, 2**20), (2**34, 1), (2**34, 2**20)]
)
def test_a_composition_that_takes_its_bounds_finds_the_same(graph, memory, count):
    layered, cluster = _layered(graph), ax.Cluster.parse(CLUSTER, memory_bytes=memory)
    meshes = {m.squeezed() for s in submeshes(cluster, "power_of_two") for m in logical_meshes(cluster, s)}
    for mesh in meshes:
        task = _task(mesh, cluster.device, 1 / count)
        taken = compose_mesh(layered, replace(task, bounds=fastest_on_mesh(layered, task)))
        at_once = compose_mesh(layered, task)
        assert taken == at_once
        for r, frontier in taken.items():
            assert [p.provenance for p in frontier.points] == [p.provenance for p in at_once[r].points]


@pytest.mark.slow
def test_bounds_at_another_b_are_below_the_exact_optimum_and_choices_cost_what_they_say(graph):
    layered, cluster = _layered(graph), ax.Cluster.parse(CLUSTER, memory_bytes=1_700_000)
    meshes = {m.squeezed() for s in submeshes(cluster, "power_of_two") for m in logical_meshes(cluster, s)}
    tight = 0
    for mesh in meshes:
        at_b = {b: compose_mesh(layered, _task(mesh, cluster.device, 1 / b)) for b in (2, 16, 1000)}
        for known, other in [(x, y) for pair in combinations(at_b, 2) for x, y in (pair, pair[::-1])]:
            for layers, exact in at_b[other].items():
                found = at_inverse_b(at_b[known][layers], 1 / other)
                optimum = exact.bound_seconds
                assert found.bound_seconds <= min(p.totals.latency_at(1 / other) for p in exact.points)
                assert found.bound_seconds <= optimum
                best = min(p.totals.latency_at(1 / other) for p in found.points)
                assert best >= optimum - TIE_SECONDS
                near = [p for p in found.points if p.provenance is Provenance.NEAR]
                if near:
                    tight += 1
                    assert min(p.totals.latency_at(1 / other) for p in near) <= optimum * (1 + 3 * TOLERANCE)
                assert not found.proven
                assert not any(p.provenance in (Provenance.FASTEST, Provenance.EXACT) for p in found.points)
    assert tight > 50, "most choices of another B are near the fastest"


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize("memory", [1_700_000, 2**34])
def test_a_choice_on_the_chord_is_the_fastest_and_the_next_smaller_b_have_one(graph, memory):
    layered, cluster = _layered(graph), ax.Cluster.parse(CLUSTER, memory_bytes=memory)
    attained = dict.fromkeys((128, 64, 32, 8), 0)
    ranges = 0
    for mesh in {m.squeezed() for s in submeshes(cluster, "power_of_two") for m in logical_meshes(cluster, s)}:
        known = compose_mesh(layered, _task(mesh, cluster.device, 1 / 128))
        ranges += len(known)
        for b in attained:
            for layers, exact in fastest_at_b(layered, _task(mesh, cluster.device, 1 / b)).items():
                found = where_attained(known[layers], 1 / b)
                if found is None:
                    continue
                attained[b] += 1
                assert found.proven
                assert found.bound_seconds == pytest.approx(exact.bound_seconds, rel=1e-9)
                assert dict(found.optima)[1 / b] == pytest.approx(dict(exact.optima)[1 / b], rel=1e-9)
                (fastest,) = [p for p in found.points if p.provenance is Provenance.FASTEST]
                assert fastest.totals.device_latency_at(1 / b) == dict(found.optima)[1 / b]
                assert set(found.points) == set(known[layers].points)
    assert attained[128] == ranges
    assert attained[64] >= attained[8], attained
    assert attained[64] > 0.8 * ranges, attained


def test_outside_of_the_known_b_nothing_is_claimed(graph):
    layered, cluster = _layered(graph), ax.Cluster.parse(CLUSTER)
    mesh = logical_meshes(cluster, submeshes(cluster, "power_of_two")[-1])[0].squeezed()
    frontier = next(iter(compose_mesh(layered, _task(mesh, cluster.device, 1 / 8)).values()))
    assert at_inverse_b(frontier, SMALLEST_INVERSE_B / 2) is None


def test_the_nearest_b_is_found_by_problems_that_are_alike_and_no_other(graph, tmp_path):
    layered, cluster = _layered(graph), ax.Cluster.parse(CLUSTER)
    solving = SolveContext(solver="auto", executor=Executor("serial"), store=SolveCache(tmp_path))
    for b in (8, 64):
        EagerPricing(layered, _query(cluster, b), solving, ()).begin()
    known = KnownMeshes(solving.store)
    pricing = EagerPricing(layered, _query(cluster, 50), solving, ())
    pricing.begin()
    assert pricing.deferred.keys() | pricing.composed == pricing.tasks.keys()
    assert pricing.deferred.keys().isdisjoint(pricing.composed)
    task, _ = next(iter(pricing.mesh_tasks.values()))
    alike = pricing.alike(task)
    of_64 = compose_mesh(layered, _at(task, 64))
    nearest = {layers: where_attained(f, 1 / 50) or at_inverse_b(f, 1 / 50) for layers, f in of_64.items()}
    found = known.find(task, alike)
    assert found.composed
    assert {r: f.proven for r, f in found.frontiers.items()} == {r: nearest[r].proven for r in found.frontiers}
    assert {r: f.points for r, f in found.frontiers.items()} == {r: nearest[r].points for r in found.frontiers}
    smaller = replace(task, device=replace(task.device, memory_bytes=2**30))
    elsewhere = known.find(smaller, alike)
    assert (elsewhere.frontiers.keys(), elsewhere.composed) == (found.frontiers.keys(), False)
    assert known.find(task, {r: key + "other" for r, key in alike.items()}) is None
    assert KnownMeshes(SolveCache(tmp_path, code_version="1")).find(task, alike) is None
    assert KnownMeshes(None).find(task, alike) is None


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize("memory", [1_700_000, 2**34])
def test_a_composition_of_another_b_with_the_fastest_choices_at_this_one_says_what_one_of_this_b_says(graph, memory):
    layered, cluster = _layered(graph), ax.Cluster.parse(CLUSTER, memory_bytes=memory)
    for mesh in {m.squeezed() for s in submeshes(cluster, "power_of_two") for m in logical_meshes(cluster, s)}:
        task = _task(mesh, cluster.device, 1 / 16)
        elsewhere, anew = compose_mesh(layered, _at(task, 200)), compose_mesh(layered, task)
        fastest = fastest_at_b(layered, task)
        assert fastest.keys() == anew.keys()
        for r, exact in anew.items():
            both = added(at_inverse_b(elsewhere[r], 1 / 16), fastest[r])
            assert both.proven
            assert (both.bound_seconds, both.least_peaks) == (exact.bound_seconds, exact.least_peaks)
            assert dict(both.optima)[1 / 16] == dict(exact.optima)[1 / 16]
            assert len(both.points) == len(set(both.points)) >= len(fastest[r].points)
            for b in (1, 4, 16, 200, 10_000):
                quickest = [min((p.totals.latency_at(1 / b) for p in f.points), default=0) for f in (both, exact)]
                # At a quarter of its B, 4, a composition knows the fastest choice.
                assert quickest[0] <= quickest[1] * (1 + 3 * TOLERANCE)


def _at(task, b):
    return replace(task, inverse_b=1 / b)


def _query(cluster, b):
    return PipelineQuery(cluster=cluster, options=PipelineOptions(), num_microbatches=b)


def _answer(graph, memory, b, **options):
    cluster = ax.Cluster.parse(CLUSTER, memory_bytes=memory)
    try:
        plan = ax.plan(graph, cluster, num_microbatches=b, num_layers=LAYERS, scheduler="serial", **options)
    except InfeasiblePlanError as error:
        return str(error)
    stages = [(s.layers, s.submesh, s.logical_mesh, s.latency_seconds, tuple(s.operators)) for s in plan.stages]
    return plan.predicted.iteration_seconds, stages, plan.warnings


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, [(2_400_000, 7), (900_000, 64)]),
        ({}, [(2**34, 7), (2_400_000, 64), (2_400_000, 8), (1_900_000, 200), (900_000, 64)]),
        ({"rematerialization": "auto"}, [(2_400_000, 7), (900_000, 64)]),
        ({"pipeline": PipelineOptions(schedule="gpipe")}, [(2_400_000, 7), (900_000, 64)]),
    ],
)
def test_plans_from_a_cache_of_another_b_and_memory_are_those_without_a_cache(
    graph, tmp_path_factory, monkeypatch, options, asked
):
    monkeypatch.setenv("ALPA_EXPLORE_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(tuning, "FITTING_SECONDS", 1000.0)  # else a busy machine may stop one of two equal solves
    _answer(graph, 2**34, 64, **options)
    feasible = 0
    for memory, b in asked:
        warm, cold = _answer(graph, memory, b, **options), _answer(graph, memory, b, cache=False, **options)
        assert warm == cold
        feasible += not isinstance(cold, str)
    assert 1 <= feasible < len(asked), "some fit, some do not"
