"""Runs on two emulated hosts by Dask: no shared folder, names that lead to the loopback, interfaces that lead nowhere.

Workers fork their agents (forked_python.py), but where the agents' environment is looked at: there they start as users'
workers start them.
"""

import json
import sys

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import alpa_explore as ax
from alpa_explore.cli import main
from alpa_explore.errors import OptionError, RunError
from alpa_explore.runtime.checkpoints.description import find_checkpoint
from alpa_explore.runtime.launch import launch
from tests.hosts.runs import no_rank_is_left, reached
from tests.runtime.plans import small_plan
from tests.runtime.states import ended

pytestmark = pytest.mark.hosts
FOR_EVER = 10**6


@pytest.fixture
def empty_pair(make_hosts):
    """Two hosts without workers, and a scheduler."""
    hosts = make_hosts(2)
    return hosts, hosts.scheduler()


def small_run(hosts, folder, scheduler=None):
    """A run that goes on until it is stopped, when it is under way."""
    where = scheduler or hosts.scheduler_address
    run = launch(small_plan(hosts.count), "dask", scheduler=where, steps=FOR_EVER, folder=folder, device="cpu")
    reached(run, lambda progress: progress.steps)
    return run


def test_the_command_line_verifies_a_plan_on_hosts_and_exits_1_where_it_differs(
    pair, monkeypatch, launcher, run_folder, capsys
) -> None:
    monkeypatch.setenv("TMPDIR", str(launcher))
    monkeypatch.setattr("tempfile.tempdir", None)
    plan = ax.baseline("gpt-tiny", "2x1:cpu", "data-parallel", num_microbatches=2, num_layers=2, precision="float32")
    run_folder.mkdir()
    plan.save(run_folder / "a.plan.json")
    asked = ["verify", str(run_folder / "a.plan.json"), "--device", "cpu", "--json"]
    there = ["--target", "dask", "--scheduler", pair.scheduler_address, "--ports", "29600-29620"]
    assert main([*asked, *there]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ranks"], found["steps"], found["passed"]) == (2, 2, True)
    values = {"loss", "gradient", "weight"}
    assert set(found["relative_error"]) == values | {f"module {name}" for name in values}
    assert found["compared"] > 100
    # Two ranks add up a gradient in another order than one process: nothing is equal to 1e-12.
    assert main([*asked, *there, "--tolerance", "1e-12"]) == 1
    assert no_rank_is_left(pair)


def test_what_ranks_write_comes_back_from_hosts_without_the_folder(pair, run_folder) -> None:
    plan, there = small_plan(), {"target": "dask", "scheduler": pair.scheduler_address, "device": "cpu"}
    local = ended(launch(plan, steps=3, folder=run_folder / "local", save=run_folder / "a", device="cpu"))
    to = {"folder": run_folder / "run", "save": run_folder / "b"}
    run = launch(plan, steps=3, checkpoint_every=2, **to, **there)
    assert [s.loss for s in ended(run).steps] == [s.loss for s in local.steps]
    weights = []
    for name in ("a", "b"):
        dcp_to_torch_save(run_folder / name, run_folder / f"{name}.pt")
        weights.append(torch.load(run_folder / f"{name}.pt"))
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    kept = sorted(p.name for p in (run_folder / "run" / "checkpoints").iterdir())
    assert kept == ["step-000002", "step-000003"]
    assert (run_folder / "run" / "measured.json").exists()
    assert not list(pair.folder.glob("local-*/**/rank-*")), "the copies of the folder are removed"
    # Going on from there needs the checkpoint on the hosts.
    more = launch(plan, steps=5, resume=run_folder / "run", folder=run_folder / "more", **there)
    assert [s.step for s in ended(more).steps] == [3, 4]


def test_ranks_use_the_interface_by_which_the_scheduler_knows_the_worker_unless_told(empty_pair, run_folder) -> None:
    hosts, scheduler = empty_pair
    hosts.worker(0, scheduler)
    hosts.worker(1, scheduler, env={"NCCL_SOCKET_IFNAME": "mine"})
    run = small_run(hosts, run_folder, scheduler)
    found = [hosts.ranks(host)[0].environ() for host in (0, 1)]
    assert [e["GLOO_SOCKET_IFNAME"] for e in found] == ["e0", "e0"]
    assert [e["NCCL_SOCKET_IFNAME"] for e in found] == ["=e0", "mine"]
    run.stop()
    assert ended(run).stopped
    assert no_rank_is_left(hosts)


def test_hosts_with_one_name_and_two_workers_on_a_host_by_ipv6(make_hosts, agents, run_folder) -> None:
    hosts = make_hosts(2, names=("twin", "twin"))
    scheduler = hosts.scheduler(six=True)
    started = [hosts.worker(host, scheduler, six=True, agents=agents, wait=False) for host in (0, 1, 0, 1)]
    for worker in started:
        hosts.wait_for_worker(worker)
    run = launch(small_plan(4), "dask", scheduler=scheduler, steps=2, folder=run_folder, device="cpu")
    assert len(ended(run).steps) == 2
    named = json.loads((run_folder / "hosts.json").read_text())
    assert list(named.values()) == [f"twin ({hosts.address6(host)})" for host in (0, 0, 1, 1)]


def test_a_host_with_another_version_is_named_before_anything_starts(empty_pair, tmp_path, run_folder) -> None:
    hosts, scheduler = empty_pair
    other = tmp_path / "other" / "torch-2.9.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.1\n")
    path = [str(other.parent), *(p for p in sys.path if p)]
    hosts.worker(0, scheduler)
    hosts.worker(1, scheduler, env={"PYTHONPATH": ":".join(path)})
    with pytest.raises(OptionError, match=rf"other versions.*: node1 \({hosts.address(1)}\): torch 2\.9\.1, "):
        launch(small_plan(), "dask", scheduler=scheduler, folder=run_folder, device="cpu")
    assert not run_folder.exists()


def test_a_worker_that_is_lost_ends_the_run_with_its_name_and_its_ranks_end_themselves(pair, run_folder) -> None:
    run = small_run(pair, run_folder)
    (worker,) = (p for p in pair.processes(1) if "--local-directory" in p.cmdline())
    worker.kill()
    with pytest.raises(RunError, match=rf"tcp://{pair.address(1)}:\d+ on node1 is gone"):
        ended(run)
    assert no_rank_is_left(pair)


def test_a_checkpoint_can_be_asked_for_from_hosts_without_the_folder(pair, run_folder) -> None:
    run = small_run(pair, run_folder)
    step = run.checkpoint()
    (kept,) = reached(run, lambda progress: progress.checkpoints)
    run.stop()
    assert ended(run).stopped
    assert run.progress.checkpoints == (kept,)
    assert kept.step >= step  # later where the request reached the ranks too late
    assert find_checkpoint(run.folder)[1].step == kept.step
