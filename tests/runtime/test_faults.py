"""Whatever happens to a rank or to the one who started it: the run ends, says why, and leaves no process behind."""

import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import psutil
import pytest
import torch

import alpa_explore as ax
from alpa_explore.errors import OptionError, RecipeError, RunError, ScheduleError, UnknownNameError
from alpa_explore.models.recipe import build_from_recipe
from alpa_explore.programs.execution import execute
from alpa_explore.programs.execution.execute import RankExecutor
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.runtime import tuning
from alpa_explore.runtime.launch import launch
from alpa_explore.runtime.ranks import agent, worker
from alpa_explore.runtime.targets import local
from alpa_explore.runtime.targets.local import environment
from alpa_explore.schedules.orders.one_f_one_b import one_f_one_b
from tests.runtime.plans import small_plan
from tests.runtime.states import ended, gone, processes_of, stepped
from tests.waiting import limit_seconds, until

FOR_EVER = 10**6


@pytest.fixture(scope="module")
def plan():
    return small_plan()


def test_more_devices_than_are_attached_are_counted_and_nothing_is_started(plan, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tuning, "PROCESSES_A_CORE", 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    with pytest.raises(OptionError, match=r"2 in the plan, 1 CPU processes .* attached: 1 are missing"):
        launch(plan, folder=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_run_is_refused_at_once(plan, tmp_path) -> None:
    for error, asked in (
        (UnknownNameError, {"target": "lokal"}),
        (OptionError, {"steps": 0}),
        (OptionError, {"device": "tpu"}),
    ):
        with pytest.raises(error):
            launch(plan, folder=tmp_path / "run", **asked)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(OptionError, match="must be empty"):
        launch(plan, folder=tmp_path / "taken")
    with pytest.raises(OptionError, match="folder of weights must be empty"):
        launch(plan, folder=tmp_path / "run", save=tmp_path / "taken")
    assert not (tmp_path / "run").exists()


def test_what_keeps_a_run_from_being_prepared_is_raised_by_its_result(plan, tmp_path) -> None:
    module = build_from_recipe(plan.model.recipe, plan.model.samples, device="cpu").model
    run = launch(plan, folder=tmp_path / "run", model=module, data=[], device="cpu")
    with pytest.raises(OptionError, match="There is no data"):
        run.result()
    assert run.progress.state == "failed"


def test_a_file_of_the_data_that_is_missing_is_no_full_disk(plan, tmp_path) -> None:
    class Tokens(list):
        def __len__(self):
            raise FileNotFoundError(2, "No such file or directory", "my-tokens.bin")

    module = build_from_recipe(plan.model.recipe, plan.model.samples, device="cpu").model
    run = launch(plan, folder=tmp_path / "run", model=module, data=Tokens(), device="cpu")
    with pytest.raises(RunError, match=r"could not be prepared: FileNotFoundError: .*my-tokens.bin.*files of the data"):
        run.result()


def test_what_cannot_run_is_refused_before_anything_is_written(plan, tmp_path) -> None:
    with pytest.raises(UnknownNameError, match="fastest"):
        launch(plan, folder=tmp_path / "run", schedule="fastest", device="cpu")
    with pytest.raises(ScheduleError, match="made for another pipeline"):
        launch(plan, folder=tmp_path / "run", schedule=one_f_one_b(3, 2), device="cpu")
    with pytest.raises(RecipeError):
        launch(replace(plan, model=replace(plan.model, recipe="a:b")), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.distributed
def test_a_killed_rank_ends_the_run_with_its_name_and_no_process_is_left(plan, tmp_path) -> None:
    run = launch(plan, folder=tmp_path, steps=FOR_EVER, device="cpu")
    stepped(run)
    assert run.progress.steps[0].loss > 0
    running = processes_of(tmp_path)
    assert sorted(running) == ["agent-0", "rank-0", "rank-1"]
    running["rank-1"].kill()
    with pytest.raises(RunError, match="Rank 1 was killed: signal 9, SIGKILL") as raised:
        ended(run)
    assert f"Logs: {tmp_path}" in raised.value.remedy
    assert "\nstep " in raised.value.__notes__[0], "the end of the rank's log"
    gone(tmp_path)


@pytest.fixture
def watched(tmp_path):
    """An agent that watches two ranks, and a function by which a rank says how many instructions it has done."""
    (tmp_path / "run.json").write_text(json.dumps({"options": {"stall_seconds": 60.0}}))
    times = itertools.count(1)

    def say(rank, instructions, **where):
        said = json.dumps({"instructions": instructions, "doing": "task 0F0", "waits_for": "", **where})
        path = tmp_path / f"rank-{rank}.alive"
        path.write_text(said)
        os.utime(path, (0, next(times)))  # a later one, whatever the clock of the disk can tell apart

    return agent.Agent(tmp_path, 0, 2, ""), say


def test_a_rank_without_a_sign_of_life_is_said_to_hang_when_its_time_is_over(watched) -> None:
    agent_, say = watched
    say(0, 1)
    say(1, 1)
    assert agent_.stuck(100.0) is None
    say(0, 2)
    assert agent_.stuck(100.0 + tuning.FROZEN_SECONDS) is None
    found = agent_.stuck(100.1 + tuning.FROZEN_SECONDS)
    assert (found["rank"], found["what"]) == (1, "Rank 1 hangs")
    say(1, 1)
    assert agent_.stuck(100.2 + tuning.FROZEN_SECONDS) is None, "it was only slow"
    agent_.codes[1] = 0
    say(0, 3)
    assert agent_.stuck(900.0) is None, "one that has ended says nothing"


def test_a_rank_that_never_gave_a_sign_of_life_hangs_too(watched) -> None:
    agent_, say = watched
    say(0, 1)
    assert agent_.stuck(0.0) is None
    say(0, 2)
    found = agent_.stuck(tuning.FROZEN_SECONDS + 0.1)
    assert (found["rank"], found["found"].rpartition(" at ")[2]) == (1, "its start")


def test_ranks_that_make_no_progress_are_told_with_what_they_wait_for(watched) -> None:
    agent_, say = watched

    def looked(now, instructions=1):
        say(0, instructions, waits_for="a message of rank 1")
        say(1, 1)
        return agent_.stuck(now)

    assert looked(0.0) is None
    assert looked(50.0, instructions=2) is None
    assert looked(109.9, instructions=2) is None, "since the last instruction"
    found = looked(110.0, instructions=2)
    assert (found["rank"], found["what"]) == (1, "The ranks make no progress")
    assert "none for 60 s, rank 1 is at task 0F0; rank 0 waits for a message of rank 1" in found["found"]


@pytest.mark.distributed
def test_ranks_that_make_no_progress_end_the_run(plan, tmp_path) -> None:
    run = launch(plan, folder=tmp_path, steps=FOR_EVER, stall_seconds=2, device="cpu")
    stepped(run)
    processes_of(tmp_path)["rank-0"].suspend()
    with pytest.raises(RunError, match=r"make no progress: none for 2 s.*waits for"):
        ended(run)
    gone(tmp_path)


@pytest.mark.distributed
def test_a_loss_that_is_no_number_ends_the_run_and_says_in_which_step(plan, tmp_path) -> None:
    run = launch(plan, folder=tmp_path, steps=FOR_EVER, learning_rate=1e25, device="cpu")
    with pytest.raises(RunError, match=r"The loss is not a number: (nan|inf) in step \d, microbatch \d"):
        ended(run)
    gone(tmp_path)


@pytest.mark.distributed
def test_a_run_can_be_stopped_at_any_time(plan, tmp_path) -> None:
    at_once = launch(plan, folder=tmp_path / "a", steps=FOR_EVER, device="cpu")
    at_once.stop()
    run = launch(plan, folder=tmp_path / "b", steps=FOR_EVER, device="cpu")
    stepped(run)
    run.stop()
    assert ended(run).stopped
    assert run.progress.state == "stopped"
    assert ended(at_once).stopped
    assert not processes_of(tmp_path / "a") | processes_of(tmp_path / "b")


@pytest.mark.distributed
def test_a_run_is_stopped_also_where_its_agent_is_too_busy_to_notice(plan, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tuning, "STOP_SECONDS", 0.5)
    run = launch(plan, steps=FOR_EVER, device="cpu", folder=tmp_path)
    leader = until(lambda: processes_of(tmp_path).get("agent-0"), "the agent runs")
    leader.suspend()  # as on a loaded machine: it does not read its standard input
    run.stop()
    assert ended(run).stopped
    gone(tmp_path)


@pytest.mark.distributed
def test_when_the_agent_is_killed_its_ranks_end_too(plan, tmp_path) -> None:
    run = launch(plan, folder=tmp_path, steps=FOR_EVER, device="cpu")
    stepped(run)
    processes_of(tmp_path)["agent-0"].kill()
    with pytest.raises(RunError, match="The agent of rank 0 ended: exit code -9 on"):
        ended(run)
    gone(tmp_path)


@pytest.mark.distributed
def test_memory_that_runs_out_is_told_with_the_tensor_and_its_size(tmp_path) -> None:
    model, inputs = torch.nn.Linear(8, 2**21), (torch.zeros(16, 8), torch.zeros(16, 2**21))
    plan = ax.plan(ax.capture(model, inputs, "mse"), "1x1:cpu", num_microbatches=1, num_layers=1)

    def data(_number):
        used = psutil.Process().memory_info().vms
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**24, used + 2**24))
        return inputs

    run = launch(plan, folder=tmp_path, steps=1, model=model, loss="mse", data=data, device="cpu")
    with pytest.raises(
        RunError, match=r"Rank 0 has no memory left: task 0F0, load that makes target of \[16, 2097152\]"
    ):
        ended(run)
    assert "tried to allocate 134217728 bytes" in run.folder.joinpath("rank-0.log").read_text()


def test_memory_that_runs_out_at_the_start_is_told_with_the_weight(plan, monkeypatch) -> None:
    def none_left(_whole, _box):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 16384 bytes.")

    program = lower(plan)
    rank = partial(RankExecutor, program, 0, None, learning_rate=0.1, seed=0)
    weights = {p.tensor: torch.zeros(program.graph.tensors[p.tensor].shape) for p in program.graph.parameters}
    assert rank(weights).memory.now_bytes > 0
    monkeypatch.setattr(execute, "cut", none_left)
    with pytest.raises(RuntimeError) as raised:
        rank(weights)
    told = str(worker.user_error(raised.value, 0, "its start"))
    assert "Rank 0 has no memory left: its start, taking hidden.0.weight of [128, 64] float32: RuntimeError" in told
    assert "16384 bytes" in told


def test_a_port_that_is_in_use_is_said_to_be() -> None:
    error = torch.distributed.DistNetworkError("port: 29400, name: EADDRINUSE, message: address already in use")
    assert "The port where the ranks meet is in use" in str(worker.user_error(error, 0, "its start"))


def test_a_disk_that_is_full_before_the_start_is_no_fault_of_the_plan(plan, tmp_path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, limits[1]))  # less than the initial weights
        run = launch(plan, folder=tmp_path / "run", device="cpu")
        with pytest.raises(RunError, match=r"The folder of the run cannot be written: .*File too large"):
            run.result()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not processes_of(tmp_path / "run")


def test_an_agent_that_could_not_write_why_it_ended_is_asked_of_the_disk(tmp_path, monkeypatch) -> None:
    (tmp_path / "agent-2.log").write_text("OSError: [Errno 28] No space left on device\n")
    assert local.agent_outcome(tmp_path, 2, 1)["what"] == "The agent of rank 2 ended"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    found = local.agent_outcome(tmp_path, 2, 1)
    assert found["what"] == "The disk with the folder of the run is full"
    assert "4 KiB are free, exit code 1" in found["found"]


@pytest.mark.distributed
def test_ctrl_c_ends_the_ranks_and_the_command_says_so(plan, tmp_path) -> None:
    plan.save(tmp_path / "a.plan.json")
    folder = tmp_path / "run"
    words = ["launch", str(tmp_path / "a.plan.json"), "--steps", str(FOR_EVER), "--device", "cpu", "--folder", folder]
    command = subprocess.Popen(
        [sys.executable, "-m", "alpa_explore.cli", *words],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    first = json.loads(command.stdout.readline())
    assert first["step"] == 0
    assert first["loss"] > 0
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=limit_seconds())
    gone(folder)
    assert command.returncode == 130
    assert "stopped" in said
