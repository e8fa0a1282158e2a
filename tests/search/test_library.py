"""Plans from the books of another B and another memory are those without a cache, whatever happens to the books."""

import pytest

import alpa_explore as ax
from alpa_explore.errors import InfeasiblePlanError
from alpa_explore.execution.executors import Executor
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.layering import cluster_operators
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.pricing import tuning
from alpa_explore.pricing.price_book import Search
from alpa_explore.search.library import SolveContext
from alpa_explore.search.pipeline_query import PipelineQuery
from alpa_explore.search.stage_pricing import StagePricing
from alpa_explore.store.cache import SolveCache

CLUSTER, LAYERS = "1x4:v100", 4


@pytest.fixture(scope="module")
def graph():
    return microbatch_graph("gpt-tiny", 8)


def answer(graph, memory, b, **options):
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
def test_plans_from_books_of_another_b_and_memory_are_those_without_a_cache(
    graph, tmp_path_factory, monkeypatch, options, asked
):
    monkeypatch.setenv("ALPA_EXPLORE_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(tuning, "FITTING_SECONDS", 1000.0)  # else a busy machine may stop one of two equal solves
    answer(graph, 2**34, 64, **options)
    feasible = 0
    for memory, b in asked:
        warm, cold = answer(graph, memory, b, **options), answer(graph, memory, b, cache=False, **options)
        assert warm == cold
        feasible += not isinstance(cold, str)
    assert 1 <= feasible < len(asked), "some fit, some do not"


def pricing(graph, folder, b):
    layered = assign_layers(graph, cluster_operators(graph, LAYERS, delta=2.0).layer_of_forward)
    solving = SolveContext(solver="auto", executor=Executor("serial"), store=SolveCache(folder))
    query = PipelineQuery(cluster=ax.Cluster.parse(CLUSTER), options=PipelineOptions(), num_microbatches=b)
    return StagePricing((layered,), query, solving, layer_flops=(), first=Search.COMPOSED)


def test_books_are_kept_by_their_problems_alone_and_those_that_are_damaged_are_made_again(graph, tmp_path) -> None:
    first, beside = pricing(graph, tmp_path, 8), pricing(graph, tmp_path, 64)
    first.begin()
    beside.begin()  # it has not seen what the first one has found, and adds to it
    assert (first.library.cached, beside.library.cached) == (0, 0)
    for b in (8, 64):
        assert pricing(graph, tmp_path, b).library.books() == pricing(graph, tmp_path, b).library.books()
    again = pricing(graph, tmp_path, 64)
    again.begin()
    assert again.library.cached == len(again.library.books())
    assert again.costs() == beside.costs()
    for path in tmp_path.glob("*/*.json"):
        path.write_bytes(path.read_bytes()[:-20])
    anew = pricing(graph, tmp_path, 64)
    anew.begin()
    assert anew.library.cached == 0
    assert anew.costs() == beside.costs()
    nearby = pricing(graph, tmp_path, 50)
    nearby.begin()
    assert nearby.library.cached == len(nearby.library.books()), "bounded by what is known at 64"
    known, exact = (part.query.best(part.costs()).total_seconds for part in (nearby, pricing_alone(graph, tmp_path)))
    assert known == pytest.approx(exact, rel=3 * tuning.TOLERANCE)


def pricing_alone(graph, folder):
    alone = pricing(graph, folder / "another", 50)
    alone.begin()
    return alone
