"""A plan priced again keeps its choices; with the figures it was made with it takes what it took."""

from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore.cluster import Cluster
from alpa_explore.errors import OptionError
from alpa_explore.plans.file.document import from_document, to_document
from alpa_explore.questions.reprice import reprice

OPTIONS = {
    "one stage": ax.PipelineOptions(num_stages=1),
    "zb-h1": ax.PipelineOptions(num_stages=2, schedule="zb-h1", tied_weights=True),
    "interleaved": ax.PipelineOptions(num_stages=2, schedule="interleaved-1f1b", communication=True, tied_weights=True),
}


@pytest.fixture(scope="module", params=OPTIONS)
def plan(request: pytest.FixtureRequest) -> ax.Plan:
    options = OPTIONS[request.param]
    return ax.plan("gpt-tiny", "1x2:v100", num_microbatches=4, num_layers=4, delta=1.0, pipeline=options)


@pytest.mark.slow
def test_with_the_same_figures_it_takes_the_same_from_memory_and_from_a_file(plan: ax.Plan) -> None:
    for known in (plan, from_document(to_document(plan), ax.Plan)):
        again = reprice(known, plan.cluster)
        for figure in ("iteration_seconds", "t_max_seconds", "sum_latency_seconds", "bubble_fraction"):
            assert getattr(again.predicted, figure) == pytest.approx(getattr(plan.predicted, figure), rel=1e-9)
        assert again.timeline().makespan_seconds == pytest.approx(plan.timeline().makespan_seconds, rel=1e-9)
        own, others = (
            [(s.layers, s.devices, [(o.name, o.strategy) for o in s.operators]) for s in p.interleaved]
            for p in (again, plan)
        )
        assert own == others


@pytest.mark.slow
def test_composed_stages_count_the_launches_of_collectives_as_stages_priced_alone_do() -> None:
    """Megatron's host takes a time to launch a collective, and sets the pace of so small a model."""
    composed = ax.plan(
        "llama-tiny", "1x2:h100", num_microbatches=4, num_layers=2, global_batch=16, pipeline=OPTIONS["one stage"]
    )
    alone = reprice(composed, composed.cluster)
    assert alone.predicted.iteration_seconds == pytest.approx(composed.predicted.iteration_seconds, rel=1e-9)


def test_what_the_figures_of_a_device_change_in_memory_is_counted(plan: ax.Plan) -> None:
    """What the software keeps back is part of the peak."""
    more = plan.cluster.with_changes(software=replace(plan.cluster.software, reserve_bytes=2 * 2**30))
    kept = more.device.reserved_bytes - plan.cluster.device.reserved_bytes
    assert kept > 2**30
    again = reprice(plan, more)
    for stage, before in zip(again.stages, plan.stages, strict=True):
        assert stage.peak_bytes == pytest.approx(before.peak_bytes + kept, rel=1e-9)
    assert again.predicted.peak_bytes_per_device == max(stage.peak_bytes for stage in again.stages)
    assert plan.predicted.peak_bytes_per_device == max(stage.peak_bytes for stage in plan.stages)


def test_on_devices_and_links_twice_as_fast_it_takes_half_as_long(plan: ax.Plan) -> None:
    device, link = plan.cluster.device, plan.cluster.inside_node
    fast = Cluster(
        nodes=1,
        devices_per_node=2,
        between_nodes=plan.cluster.between_nodes,
        inside_node=replace(link, bandwidth=2 * link.bandwidth, latency_seconds=link.latency_seconds / 2),
        device=replace(
            device,
            peak_flops={dtype: 2 * rate for dtype, rate in device.peak_flops.items()},
            memory_bandwidth=2 * device.memory_bandwidth,
            launch_seconds=device.launch_seconds / 2,
        ),
    )
    found = reprice(plan, fast)
    assert found.predicted.iteration_seconds == pytest.approx(plan.predicted.iteration_seconds / 2)
    assert found.timeline().makespan_seconds == pytest.approx(plan.timeline().makespan_seconds / 2)
    assert [s.solution_key for s in found.stages] == [s.solution_key for s in plan.stages]
    strategies = [[[(o.name, o.strategy) for o in s.operators] for s in p.stages] for p in (plan, found)]
    assert strategies[0] == strategies[1]


def test_a_cluster_of_another_shape_is_refused(plan: ax.Plan) -> None:
    with pytest.raises(OptionError, match="2x2 for a plan on 1x2"):
        reprice(plan, Cluster.parse("2x2:v100"))
