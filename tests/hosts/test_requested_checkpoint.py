"""A checkpoint that is asked for reaches hosts that do not see the folder of the run, and comes back from them."""

from __future__ import annotations

import time

import pytest

from alpa_explore.runtime.checkpoints.find import find_checkpoint
from alpa_explore.runtime.launch import launch
from tests.runtime.plans import small_plan

pytestmark = pytest.mark.hosts


def test_a_checkpoint_can_be_asked_for_from_hosts_without_the_folder(make_hosts, tmp_path) -> None:
    hosts = make_hosts(2)
    scheduler = hosts.dask(hide=[tmp_path])
    run = launch(small_plan(), "dask", scheduler=scheduler, steps=10**6, folder=tmp_path / "run", device="cpu")
    end = time.monotonic() + 60
    while len(run.progress.steps) < 3 and time.monotonic() < end:
        assert not run.wait(0.05), run.result()
    end = time.monotonic() + 60
    step = run.checkpoint()
    while not run.progress.checkpoints and time.monotonic() < end:
        assert not run.wait(0.05), run.result()
    run.stop()
    assert run.result(30).stopped
    (kept,) = run.progress.checkpoints
    assert kept.step >= step  # later where the request reached the ranks too late
    assert find_checkpoint(run.folder)[1].step == kept.step
