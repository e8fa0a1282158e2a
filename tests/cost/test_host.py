"""The pace of host and device, and the host time of a stage."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.cluster import Cluster, Software, logical_mesh
from alpa_explore.cluster.mesh import Submesh
from alpa_explore.cost.model import CostModel
from alpa_explore.cost.stage import PassParts, pace, passes_seconds
from alpa_explore.intra_op.solve import solve
from alpa_explore.intra_op.stage.build_problem import build_stage_problem
from alpa_explore.intra_op.stage.layered_graph import assign_layers
from alpa_explore.intra_op.stage.stage_graph import slice_stages
from alpa_explore.intra_op.stage.stage_totals import FIGURES, Figure, host_seconds, totals_of
from alpa_explore.layering import cluster_operators
from alpa_explore.planner.microbatch_graph import microbatch_graph


@pytest.mark.parametrize("sharpness", [1.5, 5.0, 10.0])
def test_the_pace_lies_between_the_slower_one_and_the_sum(sharpness: float) -> None:
    for host, device in ((1.0, 2.0), (2.0, 1.0), (1.0, 1.0), (0.0, 3.0), (1e-9, 1.0)):
        assert max(host, device) <= pace(host, device, sharpness) <= host + device + 1e-12
    assert pace(1.0, 1.0, 1.0) == pytest.approx(2.0)
    assert pace(1.0, 10.0, 10.0) == pytest.approx(10.0)


def test_in_a_plain_loop_the_host_runs_ahead_of_the_device_into_the_backward_pass() -> None:
    """Against a device that runs kernels one after the other, each of them once the host has launched it."""
    software = Software(plain_loop=True, gradient_sync="overlapped", pace_sharpness=200.0)
    for forward, backward in product(product((1.0, 2.0, 5.0), repeat=2), repeat=2):
        parts = [PassParts(host=host, device=device, stored=0.0) for host, device in (forward, backward)]
        launched = done = 0.0
        for host, device in (forward, backward):
            for _ in range(1000):
                launched += host / 1000
                done = max(done, launched) + device / 1000
        first, second = passes_seconds(*parts, software)
        assert first + second == pytest.approx(done, rel=0.01)
        waiting = passes_seconds(*parts, replace(software, plain_loop=False))
        assert sum(waiting) == pytest.approx(max(forward) + max(backward), rel=0.01)


SECONDS = st.floats(1e-6, 1.0)


@given(
    device=st.tuples(SECONDS, SECONDS),
    launching=st.tuples(SECONDS, SECONDS),
    stored=st.tuples(SECONDS, SECONDS),
    once=st.tuples(SECONDS, SECONDS, SECONDS),
    own=SECONDS,
    q=st.floats(1.0, 9.0),
    overlapped=st.booleans(),
)
def test_what_is_predicted_of_a_choice_follows_from_its_figures(
    device, launching, stored, once, own, q, overlapped
) -> None:
    """By a second formula: host, device and links of each pass, what hides of gradient sums, a microbatch's own."""
    software = Software(
        forward_launch_seconds=2e-3,
        backward_launch_seconds=3e-3,
        pace_sharpness=q,
        microbatch_seconds=own,
        contention=0.25,
        gradient_sync="overlapped" if overlapped else "exposed",
    )
    stage = SimpleNamespace(launches=(7, 11, 5), parameters=(0, 1))
    given_device = SimpleNamespace(software=software, overlaps_given=False)
    model = SimpleNamespace(device=given_device, mesh=SimpleNamespace(stragglers=1.25))
    figures = [0.0] * FIGURES
    figures[Figure.EXPOSED_FORWARD], figures[Figure.EXPOSED_BACKWARD] = 0.3 * stored[0], 0.2 * stored[1]
    figures[Figure.FORWARD] = device[0] + 0.3 * stored[0]
    figures[Figure.MICROBATCH] = sum(device) + 0.3 * stored[0] + 0.2 * stored[1]
    figures[Figure.LAUNCHING_FORWARD], figures[Figure.LAUNCHING_BACKWARD] = launching
    figures[Figure.STORED_FORWARD], figures[Figure.STORED_BACKWARD] = stored
    figures[Figure.SUMMED], figures[Figure.GATHERED], update = once
    figures[Figure.EXPOSED_ONCE] = 0.1
    figures[Figure.ITERATION] = update + 0.1
    hosts = 7 * 2e-3 + launching[0], 11 * 3e-3 + 5 * 2e-3 + launching[1]

    def soft(*values: float) -> float:
        return sum(value**q for value in values) ** (1 / q)

    def seen(moved: float, beside: float) -> float:
        late = (max(moved - beside, 0) ** 2 + (0.05 * moved) ** 2) ** 0.5
        return float(late + 0.25 * min(moved, beside))

    passes, exposed = [], [once[0], once[1]]
    for host, computing, moved in zip(hosts, device, stored, strict=True):
        if overlapped:
            paced = soft(host, computing)
            passes.append(paced + seen(moved, paced))
        else:
            passes.append(soft(host, computing + moved))
    if overlapped:
        exposed = [seen(moved, beside) for moved, beside in zip(exposed, reversed(passes), strict=True)]
    found = totals_of(figures, 0.0, stage, model)
    assert found.paced_seconds == pytest.approx(1.25 * (sum(passes) + own))
    assert found.iteration_seconds == pytest.approx(sum(exposed) + update)


def totals(software: Software):
    graph = microbatch_graph("gpt-tiny", 8)
    cluster = Cluster.parse("1x2:a100", software="alpa").with_changes(software=software)
    layered = assign_layers(graph, cluster_operators(graph, 1).layer_of_forward, software=software)
    stage = slice_stages(layered)(0, 0)
    mesh = logical_mesh(cluster, Submesh(1, 2), (1, 2)).squeezed()
    problem = build_stage_problem(stage, CostModel(cluster.device, mesh))
    choices = solve(problem.at(inverse_b=1.0, memory_price=0.0, microbatches_held=1)).choices
    host = host_seconds(stage, software)
    return problem.totals(choices), sum(host)


@pytest.mark.slow
def test_a_slow_host_sets_the_pace_and_a_fast_one_does_not() -> None:
    slow, host = totals(Software(forward_launch_seconds=1e-3, backward_launch_seconds=1e-3))
    assert slow.paced_seconds == pytest.approx(host, rel=1e-3)
    assert slow.latency_at(1.0) > slow.device_latency_at(1.0)
    ideal, none = totals(Software())
    assert none == 0.0
    assert ideal.paced_seconds == ideal.microbatch_seconds == pytest.approx(slow.microbatch_seconds)


@pytest.mark.slow
def test_the_reserve_is_part_of_the_peak() -> None:
    without, _ = totals(Software())
    reserved, _ = totals(Software(reserve_bytes=2**30))
    assert reserved.peak_bytes(1) - without.peak_bytes(1) == pytest.approx(2**30)


@pytest.mark.slow
def test_fusing_saves_bytes_and_launches() -> None:
    plain, fused = (
        totals(replace(Software(forward_launch_seconds=1e-5), fuses_pointwise=fuses)) for fuses in (False, True)
    )
    assert fused[0].microbatch_seconds < plain[0].microbatch_seconds
    assert fused[1] < plain[1]


@pytest.mark.slow
def test_the_softwares_traffic_and_gradients_are_in_a_plans_costs() -> None:
    """Wider gradients are kept and added by every device; more traffic is more time, of the microbatch alone."""
    graph = microbatch_graph("gpt-tiny", 8, precision="bfloat16")
    layered = assign_layers(graph, cluster_operators(graph, 1).layer_of_forward)

    def of(**figures: float):
        cluster = Cluster.parse("1x1:a100").with_changes(software=Software(**figures))
        mesh = logical_mesh(cluster, Submesh(1, 1), (1, 1)).squeezed()
        problem = build_stage_problem(slice_stages(layered)(0, 0), CostModel(cluster.device, mesh))
        return problem.totals(solve(problem.at(inverse_b=1.0, memory_price=0.0, microbatches_held=1)).choices)

    plain, wide, more = of(), of(gradient_bytes=4), of(traffic_factor=2.0)
    elements = sum(graph.tensors[p.tensor].elements for p in graph.parameters)
    assert wide.weight_bytes - plain.weight_bytes == pytest.approx(2 * elements)
    assert more.microbatch_seconds > plain.microbatch_seconds
    assert more.iteration_seconds == pytest.approx(plain.iteration_seconds)
    added = of(accumulate_bytes=60.0).microbatch_seconds - of(accumulate_bytes=6.0).microbatch_seconds
    device = Cluster.parse("1x1:a100").device
    assert added == pytest.approx(54 * elements / (device.memory_bandwidth * device.memory_efficiency))
