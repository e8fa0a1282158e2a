"""On how many devices a model fits: what is said to fit has a plan, and what is said to be needed has none below."""

import threading
from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore.errors import InfeasiblePlanError
from alpa_explore.planner import fitting, tuning
from alpa_explore.planner.fitting import FittingCluster, fits, fitting_cluster, larger_clusters, with_fitting_cluster
from alpa_explore.planner.microbatch_graph import microbatch_graph
from alpa_explore.planner.request import PlanRequest

B = 4


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.getbasetemp() / "planner-cache"
    monkeypatch.setenv("ALPA_EXPLORE_CACHE", str(folder))


def request_for(name, memory_bytes, cluster="1x1:v100", **options):
    graph = microbatch_graph(name, B)
    parsed = ax.Cluster.parse(cluster, memory_bytes=memory_bytes)
    return graph, PlanRequest(model=graph, cluster=parsed, num_microbatches=B, num_layers=2, **options)


def planned(request):
    return ax.plan(
        request.model, request.cluster, num_microbatches=B, num_layers=2, scheduler="serial", pipeline=request.pipeline
    )


def peak_on_one_device(name):
    _, request = request_for(name, 2**40)
    return planned(request).predicted.peak_bytes_per_device


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "share"), [("mlp-tiny", 0.3), ("gpt-tiny", 0.7), ("moe-tiny", 0.7)])
def test_the_planner_finds_a_plan_on_it_and_none_on_smaller_ones(name, share):
    graph, request = request_for(name, int(share * peak_on_one_device(name)))
    fitting = fitting_cluster(graph, request)
    assert fitting is not None
    assert fitting.found
    plan = planned(replace(request, cluster=fitting.cluster))
    assert plan.predicted.peak_bytes_per_device <= fitting.cluster.device.memory_bytes
    if fitting.least:
        for smaller in (request.cluster, *larger_clusters(request.cluster)):
            if smaller.devices < fitting.cluster.devices:
                with pytest.raises(InfeasiblePlanError):
                    planned(replace(request, cluster=smaller))


@pytest.mark.slow
def test_where_it_fits_already_it_is_said_so_and_where_nothing_can_fit_it_is_proven():
    graph, request = request_for("mlp-tiny", 2**40)
    assert fits(graph, request) is True
    graph, request = request_for("mlp-tiny", 1000)
    assert fits(graph, request) is False
    assert fitting_cluster(graph, request) is None


def test_a_single_node_grows_to_a_usual_one_before_there_are_more():
    sizes = [(c.nodes, c.devices_per_node) for c in larger_clusters(ax.Cluster.parse("1x2:v100"))]
    assert sizes == [(1, 4), (1, 8), (2, 8), (4, 8), (8, 8), (16, 8), (32, 8), (64, 8)]
    assert [(c.nodes, c.devices_per_node) for c in larger_clusters(ax.Cluster.parse("3x2:v100"))][:2] == [
        (6, 2),
        (12, 2),
    ]


def test_without_time_a_lower_bound_is_the_answer(monkeypatch):
    graph, request = request_for("mlp-tiny", int(0.7 * peak_on_one_device("mlp-tiny")))
    monkeypatch.setattr(tuning, "FIT_SECONDS", -1.0)
    found = fitting_cluster(graph, request)
    assert found is not None
    assert not found.found
    assert str(found).startswith("Needs at least ")


@pytest.mark.parametrize(("smaller", "least"), [(False, True), (None, False)])
def test_a_cluster_is_the_least_only_where_no_plan_fits_on_any_smaller_one(monkeypatch, smaller, least):
    graph, request = request_for("mlp-tiny", int(0.7 * peak_on_one_device("mlp-tiny")))
    answers = iter([smaller, False, True])
    monkeypatch.setattr(fitting, "fits", lambda *_asked, **_options: next(answers))
    found = fitting_cluster(graph, request)
    assert (found.found, found.least) == (True, least)


def test_a_cancelled_search_ends():
    graph, request = request_for("mlp-tiny", int(0.7 * peak_on_one_device("mlp-tiny")))
    cancel = threading.Event()
    cancel.set()
    found = fitting_cluster(graph, request, cancel=cancel)
    assert found is None or not found.found


@pytest.mark.parametrize(
    ("found", "least", "words"),
    [
        (True, True, "Needs 16 × v100: 2 nodes of 8"),
        (True, False, "Fits on 16 × v100: 2 nodes of 8"),
        (False, True, "Needs at least 16 × v100: 2 nodes of 8"),
    ],
)
def test_the_words_say_no_more_than_is_known(found, least, words):
    assert str(FittingCluster(cluster=ax.Cluster.parse("2x8:v100"), found=found, least=least)) == words


def test_the_error_names_the_cluster_first_and_still_what_else_helps():
    graph, request = request_for("mlp-tiny", int(0.7 * peak_on_one_device("mlp-tiny")))
    with pytest.raises(InfeasiblePlanError) as caught:
        planned(request)
    error = with_fitting_cluster(caught.value, graph, request)
    assert error.remedy.startswith("Needs 2 × v100: 1 node of 2 (1x2:v100). ")
    assert error.remedy.endswith(caught.value.remedy)
    assert error.over_bytes == caught.value.over_bytes
