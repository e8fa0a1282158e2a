"""Faults of runs on two hosts: where it may pass, the run goes on with what is left; else it ends and says why."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from alpa_explore.errors import RunError
from alpa_explore.runtime.launch import launch
from tests.runtime.plans import two_machines

pytestmark = pytest.mark.hosts
FOR_EVER = 10**6
SECONDS = 15.0
EVERY = 10


@pytest.fixture(scope="module")
def launcher(tmp_path_factory):
    """A folder that only the launcher sees."""
    return tmp_path_factory.mktemp("launcher")


@pytest.fixture
def folder(launcher):
    return Path(tempfile.mkdtemp(dir=launcher)) / "run"


@pytest.fixture
def two(make_hosts, launcher):
    """Two hosts with a worker on each."""
    hosts = make_hosts(2)
    return hosts, hosts.dask(hide=[launcher])


@cache
def plan():
    return two_machines()


def start(scheduler, folder, **options):
    asked = {"steps": FOR_EVER, "device": "cpu", "checkpoint_every": EVERY, "retries": 1} | options
    return launch(plan(), "dask", scheduler=scheduler, folder=folder, **asked)


def wait_for(run, reached):
    end = time.monotonic() + 60
    while not reached(run.progress):
        assert time.monotonic() < end, run.progress
        assert not run.wait(0.02), run.result()


def with_a_checkpoint(run):
    wait_for(run, lambda progress: progress.checkpoints and len(progress.steps) > EVERY + 2)


def no_rank_on(hosts, seconds=1.0):
    end = time.monotonic() + seconds
    while (left := [p for i in range(hosts.count) for p in hosts.ranks(i)]) and time.monotonic() < end:
        time.sleep(0.05)
    return not left


def fill(folder):
    """Write until the disk is full."""
    with contextlib.suppress(OSError), (folder / "full").open("ab", buffering=0) as stream:
        while stream.write(bytes(4096)):
            pass


def weights(saved):
    file = saved.with_suffix(".pt")
    dcp_to_torch_save(saved, file)
    return torch.load(file)


def test_a_run_that_loses_a_host_goes_on_with_the_other_one_to_the_same_weights(two, folder) -> None:
    hosts, scheduler = two
    steps = 60
    launch(plan(), steps=steps, folder=folder / "whole", save=folder / "a", device="cpu").result(60)
    run = start(scheduler, folder / "run", steps=steps, save=folder / "b")
    with_a_checkpoint(run)
    hosts.kill(1)
    result = run.result(60)
    (retry,) = result.retries
    assert "node1 is gone" in retry.reason
    assert f"under another plan, 1 stage on 1x1:cpu: 1x1, on node0 ({hosts.address(0)})" in retry.where
    assert retry.lost_steps <= EVERY
    assert [s.step for s in result.steps] == list(range(steps))
    assert run.ranks == (0,)
    expected, found = weights(folder / "a"), weights(folder / "b")
    assert expected.keys() == found.keys()
    assert max(float((found[name] - value).abs().max()) for name, value in expected.items()) < 1e-6
    assert json.loads((folder / "run" / "attempts.json").read_text())[0]["folder"] == "attempt-2"
    assert (result.folder / "measured.json").is_file()
    assert no_rank_on(hosts)


def test_a_run_whose_rank_is_killed_goes_on_with_both_hosts_and_the_same_plan(two, folder) -> None:
    hosts, scheduler = two
    run = start(scheduler, folder)
    with_a_checkpoint(run)
    max(hosts.ranks(1), key=lambda process: process.create_time()).kill()
    wait_for(run, lambda progress: progress.retries)
    (retry,) = run.progress.retries
    assert "was killed: signal 9" in retry.reason
    assert retry.lost_steps <= EVERY
    assert retry.where == f"on node0 ({hosts.address(0)}), node1 ({hosts.address(1)})"
    wait_for(run, lambda progress: len(progress.steps) > retry.first_step + 2)
    run.stop()
    assert run.result(SECONDS).stopped
    assert no_rank_on(hosts)


def test_a_run_whose_link_is_cut_goes_on_with_the_host_that_is_left(two, folder) -> None:
    hosts, scheduler = two
    run = start(scheduler, folder)
    with_a_checkpoint(run)
    hosts.cut(1)
    began = time.monotonic()
    wait_for(run, lambda progress: progress.retries)
    assert "does not answer" in run.progress.retries[0].reason
    wait_for(run, lambda progress: len(progress.steps) > progress.retries[0].first_step + 2)
    assert run.ranks == (0,)
    time.sleep(max(0.0, began + SECONDS - time.monotonic()))
    assert hosts.ranks(1) == [], "the host without a link ends its ranks itself"
    run.stop()
    assert run.result(SECONDS).stopped


def test_without_its_scheduler_a_run_ends_in_time_though_it_may_be_retried(two, folder) -> None:
    hosts, scheduler = two
    run = start(scheduler, folder)
    with_a_checkpoint(run)
    (process,) = (p for p in hosts.processes(0) if "distributed.cli.dask_scheduler" in p.cmdline())
    process.kill()
    began = time.monotonic()
    with pytest.raises(RunError, match=r"The Dask scheduler is gone: .*Not retried: .*cannot be reached"):
        run.result(SECONDS)
    assert no_rank_on(hosts, began + SECONDS - time.monotonic())


def test_a_loss_that_is_no_number_is_not_retried(two, folder) -> None:
    hosts, scheduler = two
    run = start(scheduler, folder, learning_rate=1e25, checkpoint_every=1, retries=3)
    with pytest.raises(RunError, match=r"The loss is not a number: .*Not retried: it would happen again"):
        run.result(60)
    assert run.progress.retries == ()
    assert no_rank_on(hosts)


@pytest.mark.parametrize("place", ["launcher", "host"])
def test_a_full_disk_of_the_launcher_or_a_host_is_named_and_not_retried(place, make_hosts, folder, tmp_path) -> None:
    hosts, small = make_hosts(2), tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "small", str(small)], check=True)
    try:
        scheduler = hosts.scheduler()
        arguments = ["--local-directory", str(small)] if place == "host" else []
        for host in (0, 1):
            hosts.worker(host, scheduler, hide=[folder.parent] + [small] * (place == "launcher"), arguments=arguments)
        run = start(scheduler, small / "run" if place == "launcher" else folder, retries=3)
        with_a_checkpoint(run)
        end = time.monotonic() + SECONDS
        while not run.wait(0.1) and time.monotonic() < end:
            fill(small)  # again: checkpoints that the launcher has are removed
        with pytest.raises(RunError, match=r"(full|No space left).*Not retried: it would happen again"):
            run.result(0)
        assert run.progress.retries == ()
        assert no_rank_on(hosts)
    finally:
        hosts.down()
        subprocess.run(["umount", "-l", str(small)], check=True)
