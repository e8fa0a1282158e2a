"""Launch targets beside this machine's own processes: scripts that run as they are, and Dask workers."""

import asyncio
import errno
import json
import os
import socket
import subprocess

import pytest
import torch

from alpa_explore import cli
from alpa_explore.errors import ExecutorError, OptionError, RunError, UnknownNameError
from alpa_explore.runtime.launch import launch
from alpa_explore.runtime.targets.dask_cluster import call, deal_ranks
from alpa_explore.runtime.targets.scripts import COMMANDS
from tests.ports import reserved_ports
from tests.runtime.plans import small_plan, two_machines
from tests.runtime.states import ended, gone, processes_of, stepped
from tests.waiting import limit_seconds


def script(plan, target, folder):
    run = launch(plan, target, steps=2, folder=folder, device="cpu")
    assert ended(run).steps == ()
    assert run.progress.state == "written"
    return folder / COMMANDS[target][1]


def bash(written, **options):
    limit = limit_seconds()
    return subprocess.run(["bash", written], capture_output=True, text=True, timeout=limit, check=False, **options)


def said(folder, rank):
    return [json.loads(line) for line in (folder / f"rank-{rank}.jsonl").read_text().splitlines()]


@pytest.mark.distributed
def test_the_torchrun_script_trains_and_compares(tmp_path, losses) -> None:
    plan = small_plan()
    written = script(plan, "torchrun", tmp_path / "a folder")
    done = bash(written, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "An iteration of mlp-tiny under 1f1b on cpu took" in done.stdout
    found = [e["loss"] for e in said(tmp_path / "a folder", 1) if e["event"] == "step"]
    assert found == pytest.approx(losses, rel=1e-6)
    again = bash(written)
    assert (again.returncode, "This run is over" in again.stderr) == (2, True)


@pytest.mark.distributed
def test_a_script_whose_port_is_in_use_says_so_before_a_rank_is_started(tmp_path) -> None:
    written = script(two_machines(), "torchrun", tmp_path / "run")
    with socket.create_server(("", 0)) as taken:
        port = str(taken.getsockname()[1])
        given = {**os.environ, "MASTER_ADDR": "localhost", "MASTER_PORT": port, "NODE_RANK": "0"}
        done = bash(written, env=given)
    assert done.returncode == 2
    assert f"Port {port} of this machine is in use: " in done.stderr
    assert "Set MASTER_PORT to a free one" in done.stderr
    assert not list((tmp_path / "run").glob("rank-*"))


@pytest.mark.distributed
def test_a_port_that_cannot_be_had_for_another_reason_is_not_said_to_be_in_use(tmp_path) -> None:
    written = script(two_machines(), "torchrun", tmp_path / "run")
    given = {**os.environ, "MASTER_ADDR": "localhost", "NODE_RANK": "0"}

    def stderr_of(**more: str) -> str:
        done = bash(written, env=given | more)
        assert done.returncode == 2
        assert "in use" not in done.stderr
        return done.stderr

    assert "Port 99999 of this machine cannot be had: " in stderr_of(MASTER_PORT="99999")
    assert "Port http of this machine cannot be had: " in stderr_of(MASTER_PORT="http")
    # What is wrong with Python itself is shown as it is.
    (tmp_path / "socket.py").write_text("raise RuntimeError('a module that is broken')")
    text = written.read_text().replace("PYTHONSAFEPATH=1", f"PYTHONPATH={tmp_path}${{PYTHONPATH:+:$PYTHONPATH}}")
    written.write_text(text)
    assert "a module that is broken" in stderr_of()


def run_on_two(written, **given: str):
    """(exit code, stdout, stderr) of both machines, which are this one."""
    started = [
        subprocess.Popen(
            ["bash", written],
            env=os.environ | given | {"NODE_RANK": str(number)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=limit_seconds()) for process in started]
    finally:
        for process in started:
            process.kill()
    return [(process.returncode, *output) for process, output in zip(started, outputs, strict=True)]


@pytest.mark.distributed
def test_the_torchrun_script_trains_on_two_machines(tmp_path, losses) -> None:
    written = script(two_machines(), "torchrun", tmp_path / "run")
    with reserved_ports(1) as (port,):
        first, second = run_on_two(written, MASTER_ADDR="localhost", MASTER_PORT=str(port))
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert ("An iteration of" in first[1], "An iteration of" in second[1]) == (True, False)
    found = [e["loss"] for e in said(tmp_path / "run", 1) if e["event"] == "step"]
    assert found == pytest.approx(losses, rel=1e-6)


@pytest.fixture(scope="module")
def workers():
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        yield client


@pytest.mark.distributed
def test_dask_workers_start_the_ranks(workers, tmp_path, losses, capsys) -> None:
    plan = small_plan(4)
    run = launch(plan, "dask", scheduler=workers, steps=2, folder=tmp_path / "run", device="cpu")
    assert [s.loss for s in ended(run).steps] == pytest.approx(losses, rel=1e-6)
    assert sorted(p.name for p in (tmp_path / "run").glob("agent-*.json")) == ["agent-0.json", "agent-2.json"]
    plan.save(tmp_path / "a.plan.json")
    arguments = ["launch", str(tmp_path / "a.plan.json"), "--target", "dask", "--device", "cpu", "--dry-run"]
    assert cli.main([*arguments, "--scheduler", workers.scheduler.address]) == 0
    assert json.loads(capsys.readouterr().out)["target"] == "dask"


@pytest.mark.distributed
def test_workers_with_too_few_gpus_are_told_how_many_are_missing(workers, tmp_path) -> None:
    plan, there = small_plan(4), torch.cuda.device_count()
    with pytest.raises(OptionError, match=f"4 in the plan, {2 * min(there, 2)} GPUs attached"):
        launch(plan, "dask", scheduler=workers, folder=tmp_path / "run", device="cuda")
    assert not (tmp_path / "run").exists()


@pytest.mark.distributed
def test_a_rank_that_dies_on_a_dask_worker_ends_the_run_with_the_reason(workers, tmp_path) -> None:
    run = launch(small_plan(), "dask", scheduler=workers, steps=10**6, folder=tmp_path / "run", device="cpu")
    stepped(run)
    running = processes_of(tmp_path / "run")
    assert sorted(running) == ["agent-0", "agent-1", "rank-0", "rank-1"]
    running["rank-1"].kill()
    with pytest.raises(RunError, match="Rank 1 was killed"):
        ended(run)
    gone(tmp_path / "run")


@pytest.mark.distributed
def test_a_run_on_dask_workers_stops_when_asked(workers, tmp_path) -> None:
    run = launch(small_plan(), "dask", scheduler=workers, steps=10**6, folder=tmp_path / "run", device="cpu")
    stepped(run)
    run.stop()
    assert ended(run).stopped
    gone(tmp_path / "run")


def test_ranks_are_dealt_out_in_order_and_evenly() -> None:
    machines = ["tcp://10.0.0.2:9", "tcp://10.0.0.1:7", "tcp://10.0.0.1:5"]
    assert deal_ranks(machines[:2], 4) == [("tcp://10.0.0.1:7", 0, 2), ("tcp://10.0.0.2:9", 2, 2)]
    assert deal_ranks(machines, 2) == [("tcp://10.0.0.1:5", 0, 1), ("tcp://10.0.0.1:7", 1, 1)]
    with pytest.raises(OptionError, match="4 ranks for 3 workers"):
        deal_ranks(machines, 4)
    with pytest.raises(OptionError, match="no workers"):
        deal_ranks([], 4)


@pytest.mark.parametrize(
    ("error", "raised", "may_pass"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), RunError, False),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), ExecutorError, True),
    ],
)
def test_a_host_whose_disk_is_full_answers_and_one_that_is_gone_may_come_back(error, raised, may_pass) -> None:
    class Failing:
        async def run(self, function, *arguments, workers):
            raise error

    with pytest.raises(raised, match=rf"tcp://10.0.0.1:7: .*{error.strerror}") as caught:
        asyncio.run(call(Failing(), "tcp://10.0.0.1:7", print))
    assert (caught.value.may_pass, caught.value.lost) == (may_pass, ("tcp://10.0.0.1:7",) * may_pass)


def test_a_target_that_is_none_and_a_cluster_that_is_none_are_refused(tmp_path) -> None:
    plan = small_plan()
    with pytest.raises(UnknownNameError, match="slurm"):
        launch(plan, "slurmy", folder=tmp_path / "run")
    with pytest.raises(OptionError, match="needs a cluster"):
        launch(plan, "dask", folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
