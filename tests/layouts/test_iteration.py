"""The formula of an iteration: what must be so on any machine, whatever was fitted."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.errors import ClusterError, OptionError, UnknownNameError
from alpa_explore.layouts.iteration import iteration_time
from alpa_explore.layouts.layout import Layout
from alpa_explore.layouts.machine import machine
from alpa_explore.layouts.memory import device_bytes
from tests.layouts.measured import small

A100 = machine("a100-80gb")
POWERS = st.sampled_from([1, 2, 4, 8])


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    t, d, p = draw(POWERS), draw(POWERS), draw(POWERS)
    micro, rounds = draw(POWERS), draw(st.integers(1, 20))
    return Layout(
        devices=t * d * p,
        global_batch=d * micro * rounds,
        micro_batch=micro,
        tensor=t,
        data=d,
        pipeline=p,
        heads=16,
        hidden=draw(st.sampled_from([512, 4096])),
        layers=p * draw(st.integers(1, 5)),
        sequence=draw(st.sampled_from([256, 2048])),
        vocabulary=draw(st.sampled_from([50257, 51200])),
        recompute=draw(st.booleans()),
    )


@given(layouts())
def test_an_iteration_takes_what_its_parts_take(layout: Layout) -> None:
    found = iteration_time(layout, A100)
    parts = (found.pipeline_seconds, found.gradient_sum_seconds, found.update_seconds)
    assert found.seconds == pytest.approx(sum(parts))
    assert all(part >= 0 for part in parts)
    assert found.layer_seconds >= max(found.layer_host_seconds, found.layer_device_seconds) * 0.99 or layout.recompute
    assert found.pipeline_seconds >= layout.microbatches * found.slowest_stage_seconds * (1 - 1e-12)


@given(layouts())
def test_one_more_microbatch_adds_the_slowest_stage_once(layout: Layout) -> None:
    more = replace(layout, global_batch=layout.global_batch + layout.data * layout.micro_batch)
    before, after = iteration_time(layout, A100), iteration_time(more, A100)
    assert after.seconds - before.seconds == pytest.approx(before.slowest_stage_seconds)


@given(layouts())
def test_more_work_takes_longer_and_never_less_memory(layout: Layout) -> None:
    before, held = iteration_time(layout, A100).seconds, device_bytes(layout)
    for name in ("global_batch", "layers", "hidden", "sequence", "vocabulary"):
        more = replace(layout, **{name: 2 * getattr(layout, name)})  # type: ignore[arg-type]
        if name != "vocabulary":  # a vocabulary of another divisor may have a faster product
            assert iteration_time(more, A100).seconds > before, name
        assert device_bytes(more) >= held, name


@given(layouts())
def test_a_better_machine_is_never_slower(layout: Layout) -> None:
    before = iteration_time(layout, A100).seconds
    for better in (
        {"matmul_efficiency": 0.99},
        {"attention_traffic": 1.0},
        {"forward_launch_seconds": 1e-6},
        {"backward_launch_seconds": 1e-6},
        {"collective_launch_seconds": 1e-6},
        {"collective_latency_seconds": 1e-6},
        {"collective_bandwidth": 300e9},
        {"microbatch_seconds": 0.0},
        {"iteration_seconds": 0.0},
        {"shared_node_slowdown": 0.0},
    ):
        faster = replace(A100, software=replace(A100.software, **better))
        assert iteration_time(layout, faster).seconds <= before * (1 + 1e-12)


@given(layouts())
def test_computing_activations_again_costs_time(layout: Layout) -> None:
    again, held = (iteration_time(replace(layout, recompute=flag), A100).seconds for flag in (True, False))
    assert again > held


def test_a_pipeline_of_two_takes_both_stages_and_the_slower_for_every_further_microbatch() -> None:
    one_microbatch = iteration_time(small(global_batch=4), A100)
    four = iteration_time(small(global_batch=16), A100)
    assert four.pipeline_seconds == pytest.approx(one_microbatch.pipeline_seconds + 3 * four.slowest_stage_seconds)
    assert four.slowest_stage_seconds < one_microbatch.pipeline_seconds < 2 * four.slowest_stage_seconds


def test_an_odd_vocabulary_that_is_not_divided_is_slow() -> None:
    whole = {"tensor": 1, "data": 4, "global_batch": 32}
    odd, even = (iteration_time(small(**whole, vocabulary=v), A100).seconds for v in (50257, 50264))
    assert odd > even
    odd, even = (iteration_time(small(vocabulary=v), A100).seconds for v in (50257, 50264))
    assert odd < even, "divided, it is padded: only the size counts"


def test_gradients_are_summed_once_an_iteration_and_slower_across_nodes() -> None:
    inside = iteration_time(small(pipeline=1, data=4), A100)
    across = iteration_time(small(pipeline=1, data=4), replace(A100, devices_per_node=4))
    assert iteration_time(small(pipeline=1, data=1, devices=2), A100).gradient_sum_seconds == 0
    assert across.gradient_sum_seconds > inside.gradient_sum_seconds > 0
    assert across.layer_seconds == inside.layer_seconds, "tensor parallelism stays inside the node"


@given(layouts())
def test_replicas_slow_each_other_only_where_they_share_one_of_several_nodes(layout: Layout) -> None:
    without = replace(A100, software=replace(A100.software, shared_node_slowdown=0.0))
    found, alone = iteration_time(layout, A100), iteration_time(layout, without)
    shares = layout.tensor <= A100.devices_per_node // 2 and layout.tensor * layout.data > A100.devices_per_node
    assert (found.slowest_stage_seconds > alone.slowest_stage_seconds) == shares
    assert (found.pipeline_seconds > alone.pipeline_seconds) == shares
    assert found.gradient_sum_seconds == alone.gradient_sum_seconds


def test_every_doubling_of_the_nodes_of_a_stage_costs_the_same_share() -> None:
    stages = [
        iteration_time(small(pipeline=1, data=d, devices=2 * d, global_batch=2 * d), A100).slowest_stage_seconds
        for d in (4, 8, 16, 32)
    ]
    assert [s / stages[0] for s in stages] == pytest.approx(
        [1 + doublings * A100.software.shared_node_slowdown for doublings in range(4)]
    )


def test_a_preset_without_measured_runs_says_so_and_keeps_its_own_device() -> None:
    known = machine("h100")
    assert not known.calibrated
    assert machine("a100").calibrated
    assert known.software.matmul_efficiency == known.device.matmul_efficiency
    assert known.software.forward_launch_seconds == A100.software.forward_launch_seconds
    big = small(hidden=8192, heads=64, micro_batch=8, global_batch=16)
    assert iteration_time(big, known).seconds < iteration_time(big, A100).seconds


def test_a_machine_that_cannot_be_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean"):
        machine("a1000")
    with pytest.raises(ClusterError, match="A node needs a device"):
        machine("a100", devices_per_node=0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"devices": 16}, "Give 8 devices"),
        ({"layers": 7}, "Nearest that work: 6 and 8"),
        ({"global_batch": 18}, "Nearest that work: 16 and 20"),
        ({"global_batch": 2}, "Nearest that work: 4"),
        ({"heads": 15, "hidden": 960}, "heads must be a multiple"),
        ({"hidden": 1030}, "hidden size must be a multiple"),
        ({"micro_batch": 0}, "must be 1 or more"),
    ],
)
def test_numbers_that_do_not_divide_are_told_with_what_would(changes: dict[str, int], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        small(**changes)
