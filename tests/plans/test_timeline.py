"""The timeline of a plan: its seconds and bytes are the plan's, its links are the cluster's."""

from dataclasses import replace
from itertools import product

import pytest

import alpa_explore as ax
from alpa_explore.errors import OptionError, ScheduleError, UnknownNameError
from alpa_explore.graph.tensor import GIVEN_KINDS
from alpa_explore.plans.file.document import from_document, to_document
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.planned_stage import stage_descriptions
from alpa_explore.plans.report.timeline_tables import (
    critical_table,
    submeshes_table,
    timeline_sentence,
    timeline_summary,
)
from alpa_explore.plans.schedule_stages import interleaved_stages, possible_schedules, schedule_stages
from alpa_explore.plans.timeline import plan_timeline
from alpa_explore.schedules.catalog import INTERLEAVED, SCHEDULES
from alpa_explore.schedules.csv_file import parse_csv, write_csv
from alpa_explore.schedules.simulator.memory import memory_curve
from alpa_explore.schedules.task import Action
from tests.plans.example import example_plan, without_describe
from tests.programs.cases import captured


@pytest.fixture(scope="module")
def plan() -> Plan:
    return example_plan(num_layers=8, num_microbatches=16)


@pytest.fixture(scope="module")
def real_plan() -> Plan:
    return ax.plan("gpt-tiny", "1x4:v100", num_microbatches=8, num_layers=4)


def test_under_1f1b_every_submesh_holds_what_the_plan_says_at_its_peak(plan: Plan, real_plan: Plan) -> None:
    for each in (plan, real_plan):
        timeline = each.timeline()
        for stage in each.stages:
            curve = memory_curve(timeline, stage.index)
            assert curve.held.max() == stage.microbatches_held
            assert curve.peak_bytes == pytest.approx(stage.peak_bytes, rel=1e-12)


def test_the_parts_of_a_stage_add_up_to_its_seconds_and_bytes(plan: Plan, real_plan: Plan) -> None:
    for each in (plan, real_plan):
        for stage, times in zip(each.stages, each.timeline().times, strict=True):
            assert times.microbatch_seconds == pytest.approx(stage.microbatch_seconds)
            assert times.update_seconds == stage.iteration_seconds + stage.tied_seconds
            assert times.resident_bytes == pytest.approx(stage.weight_bytes)
            forward = sum(o.compute_seconds + o.communication_seconds for o in stage.operators if o.phase == "forward")
            if each is real_plan:
                assert times.forward_seconds == pytest.approx(forward)


def test_adam_keeps_six_times_the_weights_and_gradients_as_much_as_the_weights(real_plan: Plan) -> None:
    assert real_plan.model.precision == "float16"
    given = sum(t.bytes for t in real_plan.details.graph.tensors if t.kind in GIVEN_KINDS)
    for times in real_plan.timeline().times:
        assert (
            times.gradient_bytes <= times.weight_bytes <= times.gradient_bytes + given + 1
        )  # buffers have no gradient
        assert times.optimizer_bytes == pytest.approx(6 * times.gradient_bytes)
    assert any(times.weight_bytes > times.gradient_bytes for times in real_plan.timeline().times)


def test_half_of_a_backward_pass_leads_only_to_weights(real_plan: Plan) -> None:
    first, second, *_ = real_plan.timeline().times
    # No stage waits for the gradient of the first one's input.
    assert first.backward_input_seconds == 0.0
    assert first.backward_weight_seconds > first.forward_seconds
    assert 0 < second.backward_weight_seconds < second.backward_input_seconds
    named = {o.op for o in real_plan.stages[1].operators if o.weight_half}
    assert "aten.mm.default" in named
    assert all(o.phase == "backward" for o in real_plan.stages[1].operators if o.weight_half)


def test_a_plan_that_was_read_from_a_file_has_the_same_timeline(real_plan: Plan) -> None:
    read = from_document(to_document(without_describe(real_plan)), ax.Plan)
    names = possible_schedules(real_plan)
    assert {"1f1b", "gpipe", "eager-1f1b", "zb-h1"} <= set(names)
    for name in names:
        assert timeline_summary(read, read.timeline(name)) == timeline_summary(real_plan, real_plan.timeline(name))


def test_a_file_of_an_earlier_version_has_a_timeline_without_the_split_of_the_weights(real_plan: Plan) -> None:
    document = to_document(without_describe(real_plan))
    for stage in document["stages"]:
        for operator in stage["operators"]:
            for key in ("weight_half", "gradient_bytes", "optimizer_bytes"):
                del operator[key]
    read = from_document(document, ax.Plan)
    times = read.timeline().times
    assert [t.weight_bytes for t in times] == [s.weight_bytes for s in read.stages]
    assert read.timeline().makespan_seconds == pytest.approx(real_plan.timeline().makespan_seconds)


def test_without_operators_a_stage_is_divided_in_thirds(plan: Plan) -> None:
    bare = replace(plan, details=None, stages=tuple(replace(s, operators=()) for s in plan.stages))
    for times in bare.timeline("zb-h1").times:
        assert times.forward_seconds == times.backward_input_seconds == times.backward_weight_seconds > 0


@pytest.mark.parametrize("cluster", ["2x4:v100", "8x1:v100"])
def test_a_send_carries_the_cut_at_the_speed_of_what_lies_between(plan: Plan, cluster: str) -> None:
    plan = replace(plan, cluster=ax.Cluster.parse(cluster))  # in the second every device has a network card
    timeline, per_node = plan.timeline(), plan.cluster.devices_per_node
    kinds = set()
    for a, b in zip(plan.stages, plan.stages[1:], strict=False):
        sent = plan.layers[a.layers[1]].operator_cut_bytes[-1]
        nodes = [{d // per_node for d in s.devices} for s in (a, b)]
        inside = nodes[0] == nodes[1]
        link = plan.cluster.inside_node if inside else plan.cluster.between_nodes
        lanes = min(len(a.devices), len(b.devices)) if inside else min(map(len, nodes))
        wanted = link.latency_seconds + sent / (lanes * link.bandwidth)
        assert timeline.times[a.index].send_forward_seconds == pytest.approx(wanted)
        assert timeline.times[b.index].send_backward_seconds == pytest.approx(wanted)
        kinds.add(inside)
    assert kinds == ({True, False} if per_node > 1 else {False})
    assert timeline.times[0].send_backward_seconds == timeline.times[-1].send_forward_seconds == 0.0


def test_stages_on_the_same_two_nodes_share_the_network(plan: Plan) -> None:
    timeline = plan.timeline(INTERLEAVED)
    network = [name for name in timeline.links.names if name.startswith("node")]
    assert sorted(network) == ["node 0 → node 1", "node 1 → node 0"]


def test_interleaved_stages_are_equal_runs_of_layers_at_the_costs_of_their_submesh(plan: Plan) -> None:
    timeline = plan.timeline(INTERLEAVED)
    assert timeline.schedule.num_stages == 8
    assert timeline.schedule.submesh_of_stage == (0, 1, 2, 3, 0, 1, 2, 3)
    shapes = [(m.nodes, m.devices_per_node) for m in plan.costs.submeshes]
    for stage, times in enumerate(timeline.times):
        shape = shapes.index(plan.stages[stage % 4].submesh)
        assert times.microbatch_seconds in [c.microbatch_seconds for c in plan.costs.candidates[stage, stage, shape]]


@pytest.mark.parametrize("asked", ["1f1b", "1f1b-overlap", "gpipe", "zb-h1", INTERLEAVED])
def test_a_plan_runs_under_the_schedule_it_was_made_for_and_holds_no_more_than_it_says(plan: Plan, asked: str) -> None:
    b = 8 if asked == "gpipe" else 16  # it holds all of them
    made = ax.replan(plan, num_microbatches=b, pipeline=ax.PipelineOptions(schedule=asked, num_stages=4))
    timeline = made.timeline()
    assert timeline.schedule.name == {"1f1b-overlap": "eager-1f1b"}.get(asked, asked)
    assert possible_schedules(made)[0] == timeline.schedule.name
    turns = 2 if asked == INTERLEAVED else 1
    assert timeline.schedule.num_stages == 4 * turns
    for stage in made.stages:
        own = [s for s in made.interleaved if s.devices == stage.devices] or [stage]
        assert memory_curve(timeline, stage.index).held.max() <= sum(s.microbatches_held for s in own)
    if turns == 1:
        assert memory_curve(timeline, 0).held.max() == made.stages[0].microbatches_held


def test_an_interleaved_plan_of_unequal_stages_gives_each_submesh_the_layers_it_was_planned_for(plan: Plan) -> None:
    options = ax.PipelineOptions(schedule=INTERLEAVED, num_stages=2, cuts=(5,), stage_submeshes=((0, 1, 4),))
    made = ax.replan(plan, pipeline=options)
    assert [s.layers for s in made.stages] == [(0, 4), (5, 7)]
    timeline = made.timeline()
    assert timeline.schedule.submesh_of_stage == (0, 1, 0, 1)
    whole = [
        made.costs.candidates[first, last, 2][0].activation_bytes for first, last in ((0, 1), (2, 2), (3, 5), (6, 7))
    ]
    assert [t.activation_bytes for t in timeline.times] == whole
    assert [s.devices for s in made.interleaved] == [made.stages[p].devices for p in (0, 1, 0, 1)]
    held = [row["microbatches_held"] for row in submeshes_table(made, timeline)]
    assert held == pytest.approx([stage.microbatches_held for stage in made.stages])
    read = from_document(to_document(without_describe(made)), ax.Plan)
    assert read.interleaved == without_describe(made).interleaved
    assert timeline_summary(read, read.timeline()) == timeline_summary(made, timeline)
    assert not ax.replan(made, pipeline=ax.PipelineOptions()).interleaved


def test_stages_that_a_submesh_runs_in_turn_fit_together_by_the_choices_that_cost_least_time(plan: Plan) -> None:
    options = ax.PipelineOptions(schedule=INTERLEAVED, num_stages=4)
    made = ax.replan(plan, pipeline=options)
    shapes = [(m.nodes, m.devices_per_node) for m in plan.costs.submeshes]
    changed = 0
    for submesh, stage in enumerate(made.stages):
        turns = made.interleaved[submesh::4]
        held = [turn.microbatches_held for turn in turns]
        ways = [
            (
                sum(c.held_bytes(n) for c, n in zip(way, held, strict=True)) + max(c.workspace_bytes for c in way),
                sum(c.latency_seconds(16) for c in way),
            )
            for way in product(*(plan.costs.candidates[(*t.layers, shapes.index(stage.submesh))] for t in turns))
        ]
        for room in sorted(size for size, _ in ways):
            limited = replace(made, costs=replace(made.costs, device_memory_bytes=int(room) + 1))
            own = interleaved_stages(limited, stage_descriptions(made))[submesh::4]
            used = sum(s.weight_bytes + s.activations_held_bytes for s in own) + max(s.workspace_bytes for s in own)
            assert used <= room + 1
            seconds = sum(s.latency_seconds - s.receive_seconds for s in own)
            fastest = min(seconds for size, seconds in ways if size <= room + 1)
            assert seconds == pytest.approx(fastest)
            changed += {s.solution_key for s in own} != {s.solution_key for s in turns}
    assert changed >= 4


def test_an_interleaved_plan_of_unknown_runs_has_no_timeline_and_says_what_to_do(plan: Plan) -> None:
    runs = {key: found for key, found in plan.costs.candidates.items() if key[:2] != (3, 3)}
    short = replace(plan, costs=replace(plan.costs, candidates=runs))
    made = ax.replan(short, pipeline=ax.PipelineOptions(schedule=INTERLEAVED, num_stages=4))
    assert made.interleaved == ()
    with pytest.raises(ScheduleError, match=r"layer 3 on \d×\d\. Plan for that schedule"):
        made.timeline()


def test_what_does_not_go_together_is_an_error_that_says_what_would(plan: Plan) -> None:
    with pytest.raises(ScheduleError, match=r"8 layers for 4 submeshes × 3 stages\. Choose 2 stages a submesh"):
        plan.timeline(INTERLEAVED, stages_per_submesh=3)
    six = example_plan(num_layers=6, num_microbatches=16)
    with pytest.raises(ScheduleError, match=r"6 layers for 4 submeshes × 2 stages\. Plan with a multiple of 8 layers"):
        six.timeline(INTERLEAVED)
    with pytest.raises(ScheduleError, match="B = 12 or 16"):
        example_plan(num_layers=8, num_microbatches=14).timeline(INTERLEAVED)
    with pytest.raises(OptionError, match="runs one stage"):
        plan.timeline("gpipe", stages_per_submesh=2)
    with pytest.raises(UnknownNameError):
        plan.timeline("2f2b")
    with pytest.raises(ScheduleError, match="1 submeshes and B = 1; the plan has 4 and B = 16"):
        plan.timeline(parse_csv("0F0,0B0"))


def test_a_table_from_a_file_gives_the_timeline_of_the_schedule_it_came_from(plan: Plan) -> None:
    for name in SCHEDULES:
        table = plan.timeline(name)
        again = plan_timeline(plan, parse_csv(write_csv(table.schedule)))
        assert again.makespan_seconds == table.makespan_seconds


def test_the_table_and_the_sentence_say_what_the_timeline_holds(plan: Plan) -> None:
    timeline = plan.timeline("gpipe")
    rows = submeshes_table(plan, timeline)
    assert [row["microbatches_held"] for row in rows] == pytest.approx([16] * 4)
    parts = ("weight_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes", "workspace_bytes")
    assert all(sum(row[p] for p in parts) == pytest.approx(row["peak_bytes"]) for row in rows)
    assert sum(r["on_path_seconds"] for r in critical_table(timeline)) == pytest.approx(timeline.makespan_seconds)
    sentence = timeline_sentence(plan, timeline)
    assert ("does NOT fit" in sentence) == any(row["memory_fraction"] > 1 for row in rows)


@pytest.mark.parametrize("planned", ["1f1b", "zb-v"])
def test_dual_pipe_runs_the_stages_of_the_plan_twice_from_either_end(planned) -> None:
    plan = example_plan(num_layers=8, num_microbatches=8)
    if planned != "1f1b":
        pipeline = replace(plan.options.pipeline, schedule=planned)
        plan = replace(plan, options=replace(plan.options, pipeline=pipeline))
    timeline = plan.timeline("dualpipe")
    stages, count = schedule_stages(plan, timeline.schedule), len(plan.stages)
    assert [s.layers for s in stages] == [s.layers for s in plan.stages] * 2
    assert [s.devices for s in stages[count:]] == [s.devices for s in reversed(plan.stages)]


def test_the_copies_of_a_stage_pay_and_hold_together_what_the_plan_says_of_both() -> None:
    plan = example_plan(num_layers=8, num_microbatches=8)
    pipeline = replace(plan.options.pipeline, schedule="dualpipe")
    stages = tuple(replace(s, iteration_seconds=0.3 + s.index, tied_seconds=0.0) for s in plan.stages)
    plan = replace(plan, options=replace(plan.options, pipeline=pipeline), stages=stages)
    plan = replace(plan, costs=replace(plan.costs, copies=2))
    timeline, count = plan.timeline("dualpipe"), len(plan.stages)
    for index, stage in enumerate(plan.stages):
        copies = timeline.times[index], timeline.times[count + index]
        assert sum(t.update_seconds for t in copies) == pytest.approx(stage.iteration_seconds)
        assert sum(t.resident_bytes for t in copies) == pytest.approx(stage.weight_bytes)
        assert [t.microbatch_seconds for t in copies] == pytest.approx([stage.microbatch_seconds] * 2)


def fsdp_plan(**software: object) -> Plan:
    cluster = ax.Cluster.parse("1x8:h100")
    # Without host time, so that every second is one of the device.
    changed = replace(cluster.software, forward_launch_seconds=0, backward_launch_seconds=0, **software)
    graph = captured("llama of 2", 8, 0, ())[0]
    cluster = cluster.with_changes(software=changed)
    return ax.baseline(graph, cluster, "fsdp", num_microbatches=4, num_layers=2, delta=1.0)


@pytest.mark.slow
def test_gathers_of_weights_that_computing_hides_are_what_the_price_saves() -> None:
    """A microbatch is faster than without overlap by what hides behind a pass: what operators hide each behind
    their own product, what has no product beside it (norms), and at most all; hidden and exposed are all of it."""
    plan, without = fsdp_plan(gradient_sync="overlapped"), fsdp_plan(gradient_sync="exposed")
    (times,), (alone,) = plan.timeline().times, without.timeline().times
    exposed, hidden = map(sum, zip(*times.stored_seconds, strict=True))
    assert hidden > 0
    saved = without.stages[0].microbatch_seconds - plan.stages[0].microbatch_seconds
    assert hidden <= 1.01 * saved
    assert saved <= exposed + hidden
    assert hidden >= 0.7 * saved
    assert [h for _, h in alone.stored_seconds] == [0.0, 0.0, 0.0]
    assert exposed + hidden == pytest.approx(sum(e for e, _ in alone.stored_seconds))
    whole = [sum(part) for part in times.stored_seconds]
    assert times.stored_of(Action.FORWARD) == times.stored_seconds[0]
    assert sum(times.stored_of(Action.BACKWARD)) == pytest.approx(whole[1] + whole[2])
    again = from_document(to_document(plan), ax.Plan)
    assert again.timeline().times[0].stored_seconds == times.stored_seconds


def test_without_stored_shards_nothing_is_gathered() -> None:
    replicated = ax.baseline(
        captured("llama of 2", 8, 0, ())[0], "1x8:h100", "ddp", num_microbatches=4, num_layers=2, delta=1.0
    )
    assert replicated.timeline().times[0].stored_seconds == ((0.0, 0.0),) * 3
