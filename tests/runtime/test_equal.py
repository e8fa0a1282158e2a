"""Processes that reach each other through torch.distributed give what one process gives: loss, gradients, weights."""

import json
import math
from dataclasses import asdict

import pytest
import torch

import alpa_explore as ax
from alpa_explore.baselines.roles import Role
from alpa_explore.calibration.from_run import recalibrate
from alpa_explore.calibration.refit import mean_error, predicted
from alpa_explore.cli import main
from alpa_explore.cluster import Cluster
from alpa_explore.errors import OptionError
from alpa_explore.questions.reprice import reprice
from alpa_explore.runtime.job import RunOptions, write_jobs
from alpa_explore.runtime.measured import load_measured
from alpa_explore.runtime.targets.local import LocalRanks
from alpa_explore.runtime.verify import differences
from tests.programs.cases import Case, at_random, dividing, following, optimal
from tests.programs.transforms import divided
from tests.runtime.plans import small_plan
from tests.runtime.states import ended
from tests.waiting import until

PIPELINE = [((0, 0), ()), ((1, 2), (2,)), ((3, 3), ())]
TWO = [((0, 1), (2,)), ((2, 3), (2,))]
EIGHT = [((0, 0), ()), ((1, 1), ()), ((2, 2), (2,)), ((3, 3), (2, 2))]
ONE = [((0, 3), (2, 2))]


def ways(*kinds):
    return lambda problem: divided(problem, kinds)


PROGRAMS = {
    "gpt 1+2+1": ("gpt-tiny", 3, PIPELINE, optimal, {}),
    "gpt 2+2, strategies at random, halves": ("gpt-tiny", 2, TWO, at_random(0), {"schedule": "zb-h1"}),
    "gpt data·tensor": ("gpt-tiny", 1, ONE, ways("data", "tensor"), {}),
    "llama tensor·sequence, divided vocabulary": (
        "tied llama of 1",
        2,
        [((0, 3), (2,))],
        following(Role.TENSOR_SEQUENCE),
        {},
    ),
    **{
        f"llama of a sequence divided by {context}": (
            "tied llama of 1",
            2,
            [((0, 3), (size,))],
            following(Role.CONTEXT),
            {"case": {"samples": 1, "context": context}},
        )
        for context, size in (("ring", 2), ("ring-zigzag", 4), ("ulysses", 2))
    },
    "llama data·context": (
        "tied llama of 1",
        2,
        ONE,
        following(Role.DATA, Role.CONTEXT),
        {"case": {"samples": 2, "context": "ring-zigzag"}},
    ),
    "llama in zig-zag order, context": (
        "tied llama of 1",
        2,
        [((0, 3), (4,))],
        following(Role.CONTEXT),
        {"case": {"samples": 1, "context": "ring-zigzag", "parts": 4}},
    ),
    "llama 2+2, parts of blocks computed again": (
        "llama-tiny",
        2,
        [((0, 1), (2,), "norms+attention"), ((2, 3), (2,), "mlp")],
        optimal,
        {"schedule": "zb-h1"},
    ),
    "fused attention 2+2, strategies at random": ("fused-attention", 2, TWO, at_random(0), {}),
    "mlp 1+1+2+4, at random, gpipe": ("mlp-tiny", 5, EIGHT, at_random(1), {"schedule": "gpipe"}),
    "routed experts tokens·exchange": ("routed-experts", 2, ONE, dividing("tokens", "exchange"), {}),
    "routed experts exchange, two stages": ("routed-experts", 2, TWO, dividing("exchange"), {}),
    "mlp zero·zero": ("mlp-tiny", 8, ONE, ways("zero", "zero"), {}),
    "gpt interleaved, tensor": (
        "gpt-tiny",
        4,
        [((k, k), (2,)) for k in range(4)],
        ways("tensor"),
        {"schedule": "interleaved-1f1b", "turns": 2},
    ),
    "gpt zb-v 1+1": ("gpt-tiny", 4, [((k, k), ()) for k in range(4)], optimal, {"schedule": "zb-v", "turns": 2}),
    "gpt v-half, tensor": (
        "gpt-tiny",
        4,
        [((k, k), (2,)) for k in range(4)],
        ways("tensor"),
        {"schedule": "v-half", "turns": 2},
    ),
    "one weight at both ends of a dualpipe-v": (
        "three-times",
        4,
        [((0, 0), (2,)), ((1, 1), ()), ((2, 2), ()), ((3, 3), (2,))],
        optimal,
        {"schedule": "dualpipe-v", "turns": 2},
    ),
    "one weight at both ends of a dualpipe, two copies of it at each": (
        "three-times",
        4,
        [((0, 1), (2,)), ((2, 3), (2,))] * 2,
        optimal,
        {"schedule": "dualpipe", "turns": 2},
    ),
    "one weight in interleaved stages of one submesh": (
        "three-times",
        4,
        [((k, k), (2,)) for k in range(4)],
        optimal,
        {"schedule": "interleaved-1f1b", "turns": 2},
    ),
}


def prepared(folder, model, num_microbatches, stages, choose, **more):
    """The folder of a run of a program, and its ranks."""
    case = Case(model, num_microbatches=num_microbatches, **more.pop("case", {}))
    program = case.program(stages, choose, **more)
    options = RunOptions(steps=2, record=True)
    folder.mkdir()
    write_jobs(folder, program, options, case.state, (case.microbatches * 2).__getitem__)
    (folder / "run.json").write_text(json.dumps({"options": asdict(options)}))
    return program.ranks


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.distributed
@pytest.mark.parametrize("first", range(3))
def test_programs_give_the_losses_gradients_and_weights_of_one_process(first, tmp_path) -> None:
    """Every third one, so that all have run after three days."""
    chosen = list(PROGRAMS.items())[first::3]
    folders = {tmp_path / name: prepared(tmp_path / name, *p[:-1], **p[-1]) for name, p in chosen}
    for folder, ranks in folders.items():
        running = LocalRanks(folder, len(ranks))
        assert until(running.poll, f"{folder.name} has ended") == {"state": "done"}, folder.name
        found = differences(folder, ranks)
        assert {d.step for d in found} == {0, 1}
        assert max(d.relative_error for d in found) < 1e-5, folder.name


@pytest.mark.distributed
def test_verify_passes_for_a_plan_and_fails_where_a_rank_has_another_gradient(tmp_path, capsys) -> None:
    plan = small_plan(num_microbatches=4)
    plan.save(tmp_path / "a.plan.json")
    assert main(["verify", str(tmp_path / "a.plan.json"), "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"]
    assert found["ranks"] == 2
    assert found["compared"] == 3 * (1 + 2 * 8), "two steps of the run, and a microbatch of the module"
    assert found["worst"]["relative_error"] < 1e-5

    options = ax.PipelineOptions(schedule="interleaved-1f1b", num_stages=2)
    plan = ax.plan(
        "mlp-tiny", "1x2:cpu", num_microbatches=4, num_layers=4, delta=2, pipeline=options, scheduler="serial"
    )
    plan.save(tmp_path / "a.plan.json")
    plan = ax.load_plan(tmp_path / "a.plan.json")
    assert len(plan.interleaved) == 4
    folder = tmp_path / "run"
    run = ax.launch(plan, steps=3, record=True, folder=folder, device="cpu")
    steps = ended(run).steps
    assert [s.step for s in steps] == [0, 1, 2]
    assert all(math.isfinite(s.loss) for s in steps)
    assert max(d.relative_error for d in differences(folder, run.ranks)) < 1e-5
    recorded = torch.load(folder / "step-1-rank-0.pt")
    place, box, gradient = recorded["gradients"][0]
    recorded["gradients"][0] = (place, box, gradient * (1 + 1e-3))
    torch.save(recorded, folder / "step-1-rank-0.pt")
    wrong = [d for d in differences(folder, run.ranks) if d.relative_error > 1e-5]
    assert (wrong[0].step, wrong[0].what) == (1, "gradient")

    measured = load_measured(folder)
    timeline = plan.timeline()
    assert [t.task for t in measured.tasks] == [str(timeline.schedule.task(i)) for i in range(len(measured.tasks))]
    assert all(t.measured_seconds > 0 or t.action == "U" for t in measured.tasks)
    assert [(r.rank, r.submesh) for r in measured.ranks] == [(0, 0), (1, 1)]
    assert all(r.measured_peak_bytes > 0 for r in measured.ranks)
    assert measured.measured_iteration_seconds > 0

    learned = recalibrate([folder])
    before, after, tasks = learned.before, learned.after, learned.tasks
    assert before.device == plan.cluster.device
    assert [t.name for t in tasks] == [f"{stage}{action}" for stage in range(4) for action in "FBU"]
    assert sum(t.share for t in tasks) == pytest.approx(1.0)
    assert all(t.compute_seconds > 0 for t in tasks)
    for t, times in zip(tasks[0::3], timeline.times, strict=True):
        assert predicted(before, t)[0] == pytest.approx(times.forward_seconds, rel=0.1)
    assert mean_error(after, tasks) < mean_error(before, tasks)
    file = str(tmp_path / "learnt.json")
    assert main(["calibrate", "--from-run", str(folder), "-o", file]) == 0
    assert "in 1 runs: predicted with a mean error of" in capsys.readouterr().out
    learnt = Cluster.parse(f"1x2:{file}")
    assert learnt.device.launch_seconds == pytest.approx(after.device.launch_seconds)
    assert main(["compare-run", str(folder), "--cluster", f"1x2:{file}", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["measured_iteration_seconds"] == measured.measured_iteration_seconds
    assert again["predicted_iteration_seconds"] == pytest.approx(reprice(plan, learnt).timeline().makespan_seconds)


def test_a_model_with_dropout_is_not_compared() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    inputs = (torch.zeros(4, 8), torch.zeros(4, 1))
    graph = ax.capture(model, inputs, loss="mse")
    plan = ax.plan(graph, "1x1:cpu", num_microbatches=1, num_layers=1)
    with pytest.raises(OptionError, match="dropout"):
        ax.verify(plan, model=model, example_inputs=inputs, loss="mse")
