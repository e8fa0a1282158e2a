"""The drift of a run, from times that its ranks have reported; and from a real run while it goes on."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

import alpa_explore as ax
from alpa_explore.cli import main
from alpa_explore.cluster import Submesh, logical_mesh
from alpa_explore.cost.collectives import axis_seconds
from alpa_explore.runtime.drift import drift_of
from alpa_explore.runtime.launch import launch
from alpa_explore.schedules.csv_file import write_csv
from alpa_explore.sharding.reshard import StepKind
from tests.plans.example import example_plan
from tests.runtime.plans import two_machines
from tests.runtime.states import ended
from tests.waiting import until

BYTES = 10**6


@pytest.fixture(scope="module")
def plan():
    return two_machines()


@pytest.fixture
def run_folder(plan, tmp_path):
    """A run of two ranks on two nodes, which have reported nothing yet."""
    plan.save(tmp_path / "plan.json")
    (tmp_path / "schedule.csv").write_text(write_csv(plan.timeline().schedule))
    (tmp_path / "run.json").write_text(json.dumps({"ranks": [0, 1], "stages": [[0], [1]], "num_microbatches": 2}))
    return tmp_path


def report(folder, rank, *, tasks=(), sent=(), received=(), collectives=()):
    sample = {"step": 4, "sent": list(sent), "received": list(received), "collectives": list(collectives)}
    text = json.dumps({"step": 4, "tasks": dict(tasks), "samples": [sample]})
    (folder / f"rank-{rank}.times.json").write_text(text)


def computed(plan, stage):
    """Predicted compute seconds of a stage: there are no collectives in this plan."""
    timeline = plan.timeline()
    each = timeline.times[stage]
    passes = each.forward_seconds + each.backward_input_seconds + each.backward_weight_seconds
    return 2 * passes + each.update_seconds


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("run.json", {"ranks": []}),
        ("run.json", {"ranks": [0, "1"]}),
        ("run.json", {"stages": [[0]]}),
        ("run.json", {"stages": [[0], [7]]}),
        ("run.json", {"num_microbatches": 0}),
        ("rank-0.times.json", {"tasks": {"0F": "x"}}),
        ("rank-0.times.json", {"tasks": {"F": [1.0, 0.0, 0.0]}}),
        ("rank-0.times.json", {"tasks": {"0F": [1.0]}}),
        ("rank-0.times.json", {"step": None}),
        (
            "rank-0.times.json",
            {"samples": [{"step": 4, "sent": [], "received": [[9, "0F0", 1, 0.0, 1.0]], "collectives": []}]},
        ),
        (
            "rank-0.times.json",
            {"samples": [{"step": 4, "sent": [], "received": [], "collectives": [[[0], "x", 1, 1, 1.0]]}]},
        ),
        ("hosts.json", {"0": 5}),
    ],
)
def test_files_of_a_run_that_have_another_form_are_refused(name, damage, run_folder) -> None:
    for rank in (0, 1):
        report(run_folder, rank)
    path = run_folder / name
    whole = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(whole | damage))
    with pytest.raises(ax.AlpaExploreError, match="cannot be read"):
        drift_of(run_folder)


def test_there_is_none_before_all_ranks_have_reported(plan, run_folder) -> None:
    assert drift_of(run_folder) is None
    report(run_folder, 0)
    assert drift_of(run_folder) is None
    report(run_folder, 1)
    assert drift_of(run_folder).steps == 5


def test_the_compute_of_a_stage_is_compared_without_collectives_and_waiting(plan, run_folder) -> None:
    seconds = [computed(plan, stage) for stage in (0, 1)]
    report(run_folder, 0, tasks={"0F": [seconds[0], 9.0, 9.0], "0B": [0.4 * seconds[0], 9.0, 9.0]})
    report(run_folder, 1, tasks={"1F": [0.4 * seconds[1], 9.0, 9.0], "1B": [0.6 * seconds[1], 9.0, 9.0]})
    drift = drift_of(run_folder)
    assert [s.ratio for s in drift.stages] == pytest.approx([1.4, 1.0])
    assert drift.lines == ("compute of stage 0 takes 1.4 times the predicted",)
    slower = sum(s.measured_seconds for s in drift.stages) / sum(seconds)
    before, after = plan.cluster.device, drift.cluster.device
    assert after.peak_flops["float32"] == pytest.approx(before.peak_flops["float32"] / slower)
    assert after.launch_seconds == pytest.approx(before.launch_seconds * slower)
    assert drift.cluster.between_nodes == plan.cluster.between_nodes


def test_a_device_of_two_copies_of_the_model_computes_half_of_what_both_update(tmp_path) -> None:
    """Nothing is exchanged in such a stage but the sums of both copies' gradients, which are no part of its compute."""
    dualpipe = ax.PipelineOptions(schedule="dualpipe", num_stages=2)
    options = {"num_microbatches": 4, "num_layers": 2, "delta": 1.0, "precision": "float32", "scheduler": "serial"}
    plan = ax.plan("mlp-tiny", "2x1:cpu", pipeline=dualpipe, **options)
    (tmp_path / "schedule.csv").write_text(write_csv(plan.timeline().schedule))
    run = {"ranks": [0, 1], "stages": [[0], [1], [0], [1]], "num_microbatches": 4}
    (tmp_path / "run.json").write_text(json.dumps(run))
    for rank in (0, 1):
        report(tmp_path, rank, tasks={f"{stage}F": [1.0, 0, 0] for stage in (rank, rank + 2)})
    updates = [[o for o in stage.operators if o.phase == "update"] for stage in plan.stages]
    assert all(sum(o.communication_seconds for o in found) > 0 for found in updates)
    expected = [
        4 / 2 * stage.microbatch_seconds + sum(o.compute_seconds for o in found) / 2
        for stage, found in zip(plan.stages, updates, strict=True)
    ]
    assert [s.predicted_seconds for s in drift_of(tmp_path, plan).stages] == pytest.approx(2 * expected)


@pytest.fixture
def large(tmp_path):
    """A plan of several stages of two nodes of four, and the folder of its run."""
    plan = example_plan("2x4:v100")
    (tmp_path / "schedule.csv").write_text(write_csv(plan.timeline().schedule))
    run = {"ranks": list(range(8)), "stages": [list(s.devices) for s in plan.stages], "num_microbatches": 32}
    (tmp_path / "run.json").write_text(json.dumps(run))
    return plan, tmp_path


def test_a_stage_is_as_slow_as_its_slowest_rank(large) -> None:
    plan, folder = large
    assert max(len(stage.devices) for stage in plan.stages) > 1
    took = {rank: 1.0 + (3 * rank % 8) for rank in range(8)}
    for stage in plan.stages:
        for rank in stage.devices:
            report(folder, rank, tasks={f"{stage.index}F": [took[rank], 0, 0]})
    slowest = [max(took[rank] for rank in stage.devices) for stage in plan.stages]
    assert [s.measured_seconds for s in drift_of(folder, plan).stages] == pytest.approx(slowest)


@pytest.mark.parametrize("kind", [StepKind.ALL_REDUCE, StepKind.ALL_GATHER, StepKind.ALL_TO_ALL])
def test_a_collective_is_predicted_as_the_planner_prices_it_along_its_mesh_axis(large, kind) -> None:
    """Groups that lie side by side share the network of their nodes."""
    plan, folder = large
    for shape, axis in itertools.product([(8,), (2, 4), (4, 2), (2, 2, 2)], range(3)):
        if axis >= len(shape):
            continue
        group = np.moveaxis(np.arange(8).reshape(shape), axis, -1).reshape(-1, shape[axis])[0].tolist()
        exchanged = [group, kind.value, BYTES, 3, 1.0]
        for rank in range(8):
            report(folder, rank, collectives=[exchanged] if rank in group else [])
        (link,) = drift_of(folder, plan).links
        mesh = logical_mesh(plan.cluster, Submesh(2, 4), shape)
        assert link.predicted_seconds == pytest.approx(3 * axis_seconds(kind, BYTES, mesh, axis))


@pytest.mark.parametrize("apart", [0.0, 0.05, -0.2], ids=["clocks alike", "rank 1 is late", "rank 1 is early"])
def test_a_message_that_is_waited_for_tells_the_seconds_of_the_link_whatever_the_clocks_say(
    plan, run_folder, apart
) -> None:
    took = [BYTES / 1e8, BYTES / 2e8]
    waits = 1.0  # the receiver for the sender; longer than the clocks differ by
    tasks = {f"{s}F": [computed(plan, s), 0, 0] for s in (0, 1)}
    offered, asked = waits, 0.0
    done = [waits + seconds for seconds in took]
    report(
        run_folder,
        0,
        tasks={"0F": tasks["0F"]},
        sent=[[1, "7.0", offered]],
        received=[[1, "9.0", BYTES, 5 + asked, 5 + done[1]], [1, "9.1", BYTES, 9, 9]],
    )
    report(
        run_folder,
        1,
        tasks={"1F": tasks["1F"]},
        sent=[[0, "9.0", 5 + offered + apart]],
        received=[[0, "7.0", BYTES, asked + apart, done[0] + apart]],
    )
    (link,) = drift_of(run_folder).links
    planned = plan.cluster.between_nodes
    assert link.predicted_seconds == pytest.approx(2 * planned.latency_seconds + 2 * BYTES / planned.bandwidth)
    assert link.measured_seconds == pytest.approx(sum(took), abs=1e-9)
    assert link.name == "link node 0 – node 1"


def test_a_message_takes_no_time_of_the_link_before_its_receiver_asks_and_overlaps_count_once(plan, run_folder) -> None:
    sent, received = [], []
    for name, offered, asked, done in (
        ("7.0", 1.0, 3.0, 3.5),  # 0.5 s: asked late
        ("7.1", 3.2, 3.0, 4.0),  # 0.5 s more: the link was busy until 3.5
        ("7.2", 6.0, 5.0, 6.25),  # 0.25 s: offered late
    ):
        sent.append([1, name, offered])
        received.append([0, name, BYTES, asked, done])
    report(run_folder, 0, tasks={"0F": [1, 0, 0]}, sent=sent)
    report(run_folder, 1, tasks={"1F": [1, 0, 0]}, received=received)
    (link,) = drift_of(run_folder).links
    planned = plan.cluster.between_nodes
    assert link.measured_seconds == pytest.approx(1.25)
    assert link.predicted_seconds == pytest.approx(2 * planned.latency_seconds + 3 * BYTES / planned.bandwidth)


def test_latency_and_bandwidth_follow_from_collectives_of_two_sizes(plan, run_folder) -> None:
    planned = plan.cluster.between_nodes
    sizes, latency, bandwidth = (1000, 10**7), 4 * planned.latency_seconds, planned.bandwidth / 20
    for rank, late in ((0, 0.0), (1, 0.5)):
        # An all-reduce among two: two rounds, each of half of the bytes. Rank 1 waits for rank 0.
        exchanged = [[[0, 1], "all-reduce", n, 3, 3 * 2 * (latency + n / 2 / bandwidth) + late] for n in sizes]
        report(run_folder, rank, collectives=exchanged)
    (run_folder / "hosts.json").write_text(json.dumps({"0": "east (10.0.0.1)", "1": "west (10.0.0.2)"}))
    drift = drift_of(run_folder)
    assert drift.cluster.between_nodes.bandwidth == pytest.approx(bandwidth, rel=0.05)
    assert drift.cluster.between_nodes.latency_seconds == pytest.approx(latency, rel=0.05)
    assert drift.cluster.inside_node == plan.cluster.inside_node
    assert drift.lines == ("link east – west takes 19 times the predicted",)


@pytest.mark.slow
def test_a_better_plan_is_found_for_a_slow_link_and_none_for_the_planned_one() -> None:
    shape = {"num_microbatches": 4, "num_layers": 4, "precision": "float32"}
    fast = ax.baseline("gpt-tiny", "2x1:cpu", "data-parallel", **shape)
    slow = replace(fast.cluster, between_nodes=replace(fast.cluster.between_nodes, bandwidth=2.5e6))
    better = ax.better_plan(fast, slow)
    assert better.best is not better.present
    assert better.best_seconds == pytest.approx(better.best.timeline().makespan_seconds)
    assert better.present_seconds == pytest.approx(ax.reprice(fast, slow).timeline().makespan_seconds)
    assert str(better) == f"plan B, 2 stages on 1 device each, would be {100 * better.faster:.0f} % faster"
    again = ax.better_plan(better.best, slow)
    assert (again.best is again.present, again.faster) == (True, 0.0)


@pytest.mark.distributed
def test_a_run_says_its_drift_while_it_goes_on_and_when_it_is_over(plan, tmp_path) -> None:
    run = launch(plan, steps=10**5, folder=tmp_path / "run", device="cpu")
    until(lambda: ((found := run.drift()) and found.links) or run.wait(0), "a link was measured")
    drift = run.drift()
    assert [s.measured_seconds > 0 for s in drift.stages] == [True, True]
    assert [link.nodes for link in drift.links] == [(0, 1)]
    assert 0 < drift.links[0].measured_seconds < max(step.seconds for step in run.progress.steps)
    until(lambda: run.drift().steps > drift.steps or run.wait(0), "more steps were measured")
    run.stop()
    assert ended(run).stopped
    assert run.drift().steps > drift.steps


@pytest.mark.slow
def test_compare_run_says_the_drift_and_writes_the_better_plan(tmp_path, capsys) -> None:
    shape = {"num_microbatches": 2, "num_layers": 4, "precision": "float32"}
    plan = ax.baseline("gpt-tiny", "2x1:cpu", "data-parallel", **shape)
    plan.save(tmp_path / "plan.json")
    (tmp_path / "schedule.csv").write_text(write_csv(plan.timeline().schedule))
    (tmp_path / "run.json").write_text(json.dumps({"ranks": [0, 1], "stages": [[0, 1]], "num_microbatches": 2}))
    asked = ["compare-run", str(tmp_path), "--better-plan", str(tmp_path / "b.plan.json")]
    assert main(asked) == 2
    assert "have reported no times" in capsys.readouterr().err

    for rank in (0, 1):
        report(tmp_path, rank, collectives=[[[0, 1], "all-reduce", BYTES, 1, 1.0]])
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert "link node 0 – node 1 takes" in said
    assert "with the measured figures plan B, 2 stages on 1 device each, would be" in said
    better = ax.load_plan(tmp_path / "b.plan.json")
    assert len(better.stages) == 2
    assert better.cluster.between_nodes.bandwidth < plan.cluster.between_nodes.bandwidth / 100
