"""Figures of a device fitted to tasks: those of a made-up device are found again, and what tasks do not tell stays."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alpa_explore.calibration.least_squares import non_negative
from alpa_explore.calibration.refit import LinkCollective, Observation, mean_error, predicted, refit
from alpa_explore.cluster import Cluster, Link
from alpa_explore.cluster.kernel_figures import KernelFigures
from alpa_explore.cost.kernels import Kernel, KernelKind
from alpa_explore.sharding.reshard import StepKind

PLANNED = Cluster.parse("2x4:v100")
KINDS = [kind for kind in StepKind if kind is not StepKind.SLICE]


def kernel(draw: random.Random) -> Kernel:
    matrix = draw.random() < 0.5
    size = 10 ** draw.uniform(4, 9)
    kind = KernelKind.PRODUCT if matrix else KernelKind.MEMORY
    flops = size * (500 if matrix else 1)
    return Kernel(flops=flops, bytes_accessed=4 * size, dtype="float32", matrix=matrix, kind=kind)


def exchanged(draw: random.Random, *, between: bool) -> LinkCollective:
    return LinkCollective(
        kind=draw.choice(KINDS),
        size=draw.choice([2, 4, 8]),
        bytes=10 ** draw.uniform(3, 9),
        between_nodes=between,
        sharing=draw.choice([1, 4]) if between else 1,
    )


def tasks(cluster: Cluster, seed: int, *, between: bool = True) -> list[Observation]:
    """What tasks of all sizes take on `cluster`."""
    draw, found = random.Random(seed), []
    for number in range(40):
        crossing = [between and draw.random() < 0.5 for _ in range(draw.randint(0, 3))]
        one = Observation(
            name=f"{number}F",
            share=draw.random(),
            kernels=tuple(kernel(draw) for _ in range(draw.randint(1, 9))),
            collectives=tuple(exchanged(draw, between=crosses) for crosses in crossing),
            compute_seconds=0.0,
            collective_seconds=0.0,
        )
        compute, collective = predicted(cluster, one)
        found.append(replace(one, compute_seconds=compute, collective_seconds=collective))
    return found


def other(launch: float, products: float, memory: float, latency: float, bandwidth: float) -> Cluster:
    """The planned cluster, each figure changed by a factor."""
    device, inside, between = PLANNED.device, PLANNED.inside_node, PLANNED.between_nodes
    return replace(
        PLANNED,
        device=replace(
            device,
            launch_seconds=launch * device.launch_seconds,
            matmul_efficiency=products * device.matmul_efficiency,
            memory_efficiency=memory * device.memory_efficiency,
        ),
        inside_node=Link(bandwidth=inside.bandwidth * bandwidth, latency_seconds=inside.latency_seconds * latency),
        between_nodes=Link(bandwidth=between.bandwidth / 3, latency_seconds=between.latency_seconds * 2),
    )


worse, any_ = st.floats(0.2, 1.0), st.floats(0.3, 5.0)


@pytest.mark.slow
@settings(max_examples=30)
@given(any_, worse, worse, any_, any_)
def test_a_made_up_device_is_found_again_and_tasks_that_were_not_fitted_are_predicted(
    launch: float, products: float, memory: float, latency: float, bandwidth: float
) -> None:
    true = other(launch, products, memory, latency, bandwidth)
    found = refit(PLANNED, tasks(true, seed=1))
    unseen = tasks(true, seed=2)
    assert mean_error(found, unseen) < max(0.02, 0.2 * mean_error(PLANNED, unseen))
    assert found.inside_node.bandwidth == pytest.approx(true.inside_node.bandwidth, rel=0.1)
    assert found.between_nodes.bandwidth == pytest.approx(true.between_nodes.bandwidth, rel=0.1)


def test_what_the_tasks_do_not_tell_stays() -> None:
    true = other(3.0, 0.5, 0.5, 4.0, 0.5)
    seen = tasks(true, seed=1, between=False)
    assert refit(PLANNED, seen).between_nodes.bandwidth == pytest.approx(PLANNED.between_nodes.bandwidth)
    alone = [replace(o, collectives=(), collective_seconds=0.0) for o in seen]
    found = refit(PLANNED, alone)
    assert (found.inside_node, found.between_nodes) == (PLANNED.inside_node, PLANNED.between_nodes)
    assert found.device.memory_efficiency == pytest.approx(true.device.memory_efficiency, rel=0.1)
    assert refit(PLANNED, []) == PLANNED
    ideal = replace(PLANNED, between_nodes=replace(PLANNED.between_nodes, latency_seconds=0.0))
    assert refit(ideal, seen).between_nodes == ideal.between_nodes, "of nothing seen nothing is said"


def test_a_device_that_is_quicker_than_its_peak_has_a_higher_peak() -> None:
    curve = tuple((10.0**k, share) for k, share in ((4, 0.1), (7, 0.5), (10, 0.9)))
    planned = replace(PLANNED, device=replace(PLANNED.device, matmul_curve=curve))
    quick = replace(planned, device=replace(planned.device, peak_flops={"float32": 3 * PLANNED.device.peak("float32")}))
    found = refit(planned, tasks(quick, seed=3))
    assert max(share for _, share in found.device.matmul_curve) == pytest.approx(1.0)
    assert mean_error(found, tasks(quick, seed=4)) < 0.05
    # The shape of the curve is as it was measured.
    shares = [share for _, share in found.device.matmul_curve]
    assert shares == pytest.approx([share / 0.9 for _, share in curve])


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_least_squares_without_negative_figures_is_the_best_there_is(seed: int, columns: int) -> None:
    draw = np.random.default_rng(seed)
    rows, targets = draw.standard_normal((7, columns)), draw.standard_normal(7)
    found = non_negative(rows, targets)
    slope = rows.T @ (rows @ found - targets)
    assert (found >= 0).all()
    assert (slope >= -1e-9).all(), "more of no figure is better"
    assert np.abs(slope * found).max() < 1e-9, "nor less"


def test_a_device_with_kernel_figures_keeps_their_shape() -> None:
    figures = KernelFigures(
        processors=80,
        wave_loss=0.5,
        small_tile_exponent=0.2,
        product_depth=100.0,
        unaligned_share=0.5,
        unaligned_batched_share=0.5,
        batched_share=0.8,
        shares={"float32": 0.6},
        attention_share=0.5,
        attention_backward_share=0.8,
        attention_head_exponent=0.5,
        attention_keys=300.0,
    )
    planned = replace(PLANNED, device=replace(PLANNED.device, kernels=figures))
    slower = replace(
        planned, device=replace(planned.device, kernels=replace(figures, shares={"float32": 0.3}, attention_share=0.25))
    )
    fitted = refit(planned, tasks(slower, 3))
    assert fitted.device.kernels.shares["float32"] == pytest.approx(0.3, rel=0.25)
    assert fitted.device.kernels.product_depth == figures.product_depth
    assert mean_error(fitted, tasks(slower, 4)) < mean_error(planned, tasks(slower, 4)) / 3
