"""The memory of a stage by part: it adds up to the plan's, and each microbatch is there from its forward to the end of
its backward pass."""

from dataclasses import replace

import numpy as np
import pytest

from alpa_explore.figures import tuning
from alpa_explore.figures.timelines.stage_memory import ACTIVATIONS, RESERVE, RESIDENT, WEIGHTS, WORKSPACE, held_memory
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.timeline import plan_timeline
from alpa_explore.schedules.simulator.memory import memory_curve


@pytest.mark.parametrize("name", ["plan", "deep_plan"])
def test_the_most_at_any_time_is_the_peak_of_the_plan(name: str, request: pytest.FixtureRequest) -> None:
    plan: Plan = request.getfixturevalue(name)
    peaks = [held_memory(plan, stage.index).peak_bytes for stage in plan.stages]
    assert peaks == pytest.approx([stage.peak_bytes for stage in plan.stages])
    assert max(peaks) == pytest.approx(plan.predicted.peak_bytes_per_device)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "interleaved-1f1b"])
def test_at_every_moment_the_parts_add_up_to_the_simulated_memory(plan: Plan, schedule: str) -> None:
    plan = replace(plan, options=replace(plan.options, num_microbatches=8))
    if schedule == "interleaved-1f1b" and len(plan.layers) % (2 * len(plan.stages)):
        plan = _eight_layers()
    timeline = plan_timeline(plan, schedule)
    for submesh in range(timeline.schedule.num_submeshes):
        curve = memory_curve(timeline, submesh)
        held = held_memory(plan, submesh, timeline=timeline)
        running = curve.workspace_bytes > 0
        np.testing.assert_allclose(held.total_bytes[running], curve.total_bytes[running])


def _eight_layers() -> Plan:
    from tests.plans.example import example_plan

    return example_plan(num_layers=8, num_microbatches=8)


def test_a_microbatch_is_held_from_its_forward_to_the_end_of_its_backward_pass(plan: Plan) -> None:
    held = held_memory(plan, 0)
    timeline = held.timeline
    tasks = timeline.submesh(0)
    numbers = timeline.schedule.microbatches[tasks]
    start, end = timeline.start_seconds[tasks][numbers == 2].min(), timeline.end_seconds[tasks][numbers == 2].max()
    slots = [part for part in held.parts if part.name == ACTIVATIONS]
    assert len(slots) == plan.stages[0].microbatches_held
    times = np.concatenate([held.seconds[part.microbatches == 2] for part in slots if part.microbatches is not None])
    assert times.min() == start
    assert times.max() <= end


def test_many_microbatches_in_flight_share_areas_and_none_is_lost(plan: Plan) -> None:
    timeline = plan_timeline(plan, "gpipe")  # holds all 32
    held = held_memory(plan, 0, timeline=timeline)
    parts = [part for part in held.parts if part.name == ACTIVATIONS]
    assert 1 < len(parts) <= tuning.MEMORY_SLOTS
    assert all(part.shared for part in parts)
    assert sum(float(np.nanmax(part.microbatches)) for part in parts if part.microbatches is not None) == 32


def test_what_the_software_keeps_back_is_there_all_the_time_and_only_there(plan: Plan) -> None:
    assert RESERVE not in {part.name for part in held_memory(plan).parts}, "the paper's software keeps nothing back"
    kind = plan.cluster.kinds[0]
    software = replace(kind.device.software, reserve_bytes=2**28)
    cluster = replace(plan.cluster, device=replace(kind.device, software=software))
    held = held_memory(replace(plan, cluster=cluster))
    by_name = {part.name: part.bytes for part in held.parts}
    assert set(by_name[RESERVE].tolist()) == {2.0**28}
    assert float(by_name[WORKSPACE].max()) == pytest.approx(plan.stages[0].workspace_bytes - 2**28)
    assert held.peak_bytes == pytest.approx(plan.stages[0].peak_bytes)


def test_weights_gradients_and_optimizer_state_are_told_apart_where_the_plan_knows_them(plan: Plan) -> None:
    assert RESIDENT in held_memory(plan).at_peak()
    first, *rest = plan.stages
    count = sum(o.phase == "update" for o in first.operators)
    each = first.weight_bytes / count
    updates = tuple(
        replace(o, gradient_bytes=each / 4, optimizer_bytes=each / 2) if o.phase == "update" else o
        for o in first.operators
    )
    known = replace(plan, stages=(replace(first, operators=updates), *rest), details=None)
    at_peak = held_memory(known).at_peak()
    assert at_peak[WEIGHTS] == pytest.approx(first.weight_bytes / 4)
    assert sum(at_peak.values()) == pytest.approx(first.peak_bytes)
