"""Runs on emulated hosts by Dask: no shared folder, names that lead to the loopback, interfaces that lead nowhere."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import alpa_explore as ax
from alpa_explore.cli import main
from alpa_explore.errors import ExecutorError, OptionError, RunError
from alpa_explore.runtime.launch import launch
from alpa_explore.runtime.verify import verify
from tests.runtime.plans import small_plan

pytestmark = pytest.mark.hosts
FOR_EVER = 10**6
SECONDS = 60.0
"""A run that has not ended by then hangs."""


@pytest.fixture(scope="module")
def launcher(tmp_path_factory):
    """A folder that only the launcher sees."""
    return tmp_path_factory.mktemp("launcher")


@pytest.fixture
def run_folder(launcher):
    return Path(tempfile.mkdtemp(dir=launcher)) / "run"


@pytest.fixture(scope="module")
def four(namespaces, launcher):
    """Four hosts with a worker on each."""
    from tests.hosts.hosts import Hosts

    with Hosts(4) as hosts:
        yield hosts, hosts.dask(hide=[launcher])


@pytest.fixture
def two(make_hosts, launcher):
    """Two hosts without workers, and a scheduler."""
    hosts = make_hosts(2)
    return hosts, hosts.scheduler()


def under_way(run):
    while not run.progress.steps:
        assert not run.wait(0.1), run.result()


def no_rank_on(hosts, seconds=1.0):
    end = time.monotonic() + seconds
    while (left := [p for i in range(hosts.count) for p in hosts.ranks(i)]) and time.monotonic() < end:
        time.sleep(0.05)
    return not left


def test_stages_that_span_four_hosts_compute_what_one_process_computes(four, monkeypatch, launcher) -> None:
    hosts, scheduler = four
    monkeypatch.setenv("TMPDIR", str(launcher))
    monkeypatch.setattr("tempfile.tempdir", None)
    plan = ax.baseline(
        "gpt-tiny", "2x2:cpu", "megatron", tp=2, dp=1, pp=2, num_microbatches=2, num_layers=2, precision="float32"
    )
    assert [stage.devices for stage in plan.stages] == [(0, 1), (2, 3)]
    found = verify(plan, target="dask", scheduler=scheduler, device="cpu")
    assert (found.ranks, found.passed) == (4, True)
    assert no_rank_on(hosts)


def test_the_command_line_verifies_a_plan_on_hosts_and_exits_1_where_it_differs(
    two, monkeypatch, launcher, run_folder, capsys
) -> None:
    hosts, scheduler = two
    for host in (0, 1):
        hosts.worker(host, scheduler, hide=[launcher])
    monkeypatch.setenv("TMPDIR", str(launcher))
    monkeypatch.setattr("tempfile.tempdir", None)
    plan = ax.baseline("gpt-tiny", "2x1:cpu", "data-parallel", num_microbatches=2, num_layers=2, precision="float32")
    run_folder.mkdir()
    plan.save(run_folder / "a.plan.json")
    asked = ["verify", str(run_folder / "a.plan.json"), "--device", "cpu", "--json"]
    there = ["--target", "dask", "--scheduler", scheduler, "--ports", "29600-29620"]
    assert main([*asked, *there]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ranks"], found["steps"], found["passed"]) == (2, 2, True)
    assert set(found["relative_error"]) == {"loss", "gradient", "weight"}
    assert found["compared"] > 100
    # Two ranks add up a gradient in another order than one process: nothing is equal to 1e-12.
    assert main([*asked, *there, "--tolerance", "1e-12"]) == 1
    assert no_rank_on(hosts)


def test_what_ranks_write_comes_back_from_hosts_without_the_folder(two, launcher, run_folder) -> None:
    hosts, scheduler = two
    for host in (0, 1):
        hosts.worker(host, scheduler, hide=[launcher])
    plan = small_plan()
    local = launch(plan, steps=3, folder=run_folder / "local", save=run_folder / "a", device="cpu").result(120)
    to = {"folder": run_folder / "run", "save": run_folder / "b"}
    run = launch(plan, "dask", scheduler=scheduler, steps=3, checkpoint_every=2, device="cpu", **to)
    assert [s.loss for s in run.result(120).steps] == [s.loss for s in local.steps]
    weights = []
    for name in ("a", "b"):
        dcp_to_torch_save(run_folder / name, run_folder / f"{name}.pt")
        weights.append(torch.load(run_folder / f"{name}.pt"))
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    kept = sorted(p.name for p in (run_folder / "run" / "checkpoints").iterdir())
    assert kept == ["step-000002", "step-000003"]
    assert (run_folder / "run" / "measured.json").exists()
    assert not list(hosts.folder.glob("local-*/**/rank-*")), "the copies of the folder are removed"
    # Going on from there needs the checkpoint on the hosts.
    more = launch(
        plan, "dask", scheduler=scheduler, steps=5, resume=run_folder / "run", folder=run_folder / "more", device="cpu"
    )
    assert [s.step for s in more.result(120).steps] == [3, 4]


def test_ranks_use_the_interface_by_which_the_scheduler_knows_the_worker_unless_told(two, run_folder) -> None:
    hosts, scheduler = two
    hosts.worker(0, scheduler)
    hosts.worker(1, scheduler, env={"NCCL_SOCKET_IFNAME": "mine"})
    run = launch(small_plan(), "dask", scheduler=scheduler, steps=FOR_EVER, folder=run_folder, device="cpu")
    under_way(run)
    found = [hosts.ranks(host)[0].environ() for host in (0, 1)]
    assert [e["GLOO_SOCKET_IFNAME"] for e in found] == ["e0", "e0"]
    assert [e["NCCL_SOCKET_IFNAME"] for e in found] == ["=e0", "mine"]
    run.stop()
    assert run.result(SECONDS).stopped
    assert no_rank_on(hosts)


def test_hosts_with_one_name_and_two_workers_on_a_host_by_ipv6(make_hosts, run_folder) -> None:
    hosts = make_hosts(2, names=("twin", "twin"))
    scheduler = hosts.scheduler(six=True)
    started = [hosts.worker(host, scheduler, six=True, wait=False) for host in (0, 1, 0, 1)]
    for worker in started:
        hosts.wait_for_worker(worker)
    run = launch(small_plan(4), "dask", scheduler=scheduler, steps=2, folder=run_folder, device="cpu")
    assert len(run.result(120).steps) == 2
    named = json.loads((run_folder / "hosts.json").read_text())
    assert list(named.values()) == [f"twin ({hosts.address6(host)})" for host in (0, 0, 1, 1)]


def test_ranks_meet_at_a_given_port_and_a_range_in_use_is_refused(four, run_folder) -> None:
    hosts, scheduler = four
    listen = "import socket; s = [socket.create_server(('', p)) for p in (29500, 29501)]; print(flush=1); s[0].accept()"
    taker = hosts.popen(0, [sys.executable, "-c", listen], stdout=-1)
    taker.stdout.readline()
    plan = small_plan()
    with pytest.raises(OptionError, match=r"ports where the ranks may meet are in use: 29500 to 29501 on node0"):
        launch(plan, "dask", scheduler=scheduler, ports="29500-29501", folder=run_folder / "a", device="cpu")
    run = launch(
        plan, "dask", scheduler=scheduler, ports="29500-29502", steps=FOR_EVER, folder=run_folder / "b", device="cpu"
    )
    under_way(run)
    assert f"{hosts.address(0)}:29502" in hosts.run(0, ["ss", "-Hltn"]).stdout
    run.stop()
    run.result(SECONDS)
    taker.kill()


def test_a_host_with_another_version_is_named_before_anything_starts(two, tmp_path, run_folder) -> None:
    hosts, scheduler = two
    other = tmp_path / "other" / "torch-2.9.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.1\n")
    path = [str(other.parent), *(p for p in sys.path if p)]
    hosts.worker(0, scheduler)
    hosts.worker(1, scheduler, env={"PYTHONPATH": ":".join(path)})
    with pytest.raises(OptionError, match=rf"other versions.*: node1 \({hosts.address(1)}\): torch 2\.9\.1, "):
        launch(small_plan(), "dask", scheduler=scheduler, folder=run_folder, device="cpu")
    assert not run_folder.exists()


def test_hosts_that_the_scheduler_reaches_but_not_each_other_are_named_in_time(four, run_folder) -> None:
    hosts, scheduler = four
    hosts.cut(1, 2)
    start = time.monotonic()
    try:
        with pytest.raises(ExecutorError, match=r"node1 .* → node2 .*: (no answer|no route).*; node2 .* → node1") as e:
            launch(small_plan(4), "dask", scheduler=scheduler, folder=run_folder, device="cpu")
    finally:
        hosts.restore(1, 2)
    print(f"{time.monotonic() - start:.1f} s until the refusal")
    assert "node0" not in str(e.value)
    assert not run_folder.exists()
    assert no_rank_on(hosts)


def test_code_of_the_users_own_modules_comes_along_and_is_told_its_place(
    four, tmp_path, monkeypatch, run_folder
) -> None:
    _, scheduler = four
    (tmp_path / "my_helpers.py").write_text("import torch\n\ndef ones(n):\n    return torch.ones(n, 64)\n")
    (tmp_path / "my_data.py").write_text(
        "import my_helpers\n\n"
        "def microbatch(number, place=None):\n"
        "    print('place', place and (place.rank, place.ranks, place.samples), flush=True)\n"
        "    x = my_helpers.ones(16) * number\n"
        "    return x, x[:, :1]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import my_data

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    graph = ax.capture(model, my_data.microbatch(0), "mse", name="mine")
    plan = ax.baseline(graph, "2x1:cpu", "megatron", tp=1, dp=2, pp=1, num_microbatches=2, num_layers=1)
    options = {"model": model, "loss": "mse", "data": my_data.microbatch, "steps": 2, "device": "cpu"}
    # The workers do not have the module: their path was taken before.
    run = launch(plan, "dask", scheduler=scheduler, folder=run_folder / "dask", **options)
    local = launch(plan, folder=run_folder / "local", **options)
    assert [s.loss for s in run.result(120).steps] == [s.loss for s in local.result(120).steps]
    assert "place (1, 2, (8, 16))" in (run_folder / "dask" / "rank-1.log").read_text()


def test_a_link_that_is_cut_between_two_workers_alone_ends_the_run_with_both_names(four, run_folder) -> None:
    hosts, scheduler = four
    run = launch(small_plan(4), "dask", scheduler=scheduler, steps=FOR_EVER, folder=run_folder, device="cpu")
    under_way(run)
    start = time.monotonic()
    hosts.cut(1, 2)
    try:
        with pytest.raises(RunError, match=r"cannot reach each other any more: node1 .* → node2 .*; node2 .* → node1"):
            run.result(SECONDS)
    finally:
        hosts.restore(1, 2)
    print(f"{time.monotonic() - start:.1f} s until the end")
    assert no_rank_on(hosts, SECONDS)


@pytest.mark.parametrize("fault", ["worker", "host", "link"])
def test_a_worker_a_host_or_a_link_that_is_lost_ends_the_run_with_its_name(fault, two, launcher, run_folder) -> None:
    hosts, scheduler = two
    workers = [hosts.worker(host, scheduler, hide=[launcher]) for host in (0, 1)]
    run = launch(small_plan(), "dask", scheduler=scheduler, steps=FOR_EVER, folder=run_folder, device="cpu")
    under_way(run)
    start = time.monotonic()
    if fault == "worker":
        workers[1].kill()
    elif fault == "host":
        hosts.kill(1)
    else:
        hosts.cut(1)
    with pytest.raises(RunError, match=rf"tcp://{hosts.address(1)}:\d+ on node1 (is gone|does not answer)"):
        run.result(SECONDS)
    print(f"{fault}: {time.monotonic() - start:.1f} s until the end")
    assert no_rank_on(hosts, SECONDS)
