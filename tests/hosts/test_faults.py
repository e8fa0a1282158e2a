"""Faults of runs on two hosts: where it may pass, the run goes on with what is left; else it ends and says why."""

import contextlib
import json
import subprocess
from functools import cache

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import alpa_explore as ax
from alpa_explore.errors import RunError
from alpa_explore.runtime import tuning
from alpa_explore.runtime.drift import LinkDrift
from alpa_explore.runtime.launch import launch
from tests.hosts.runs import no_rank_is_left, reached
from tests.runtime.plans import two_machines
from tests.runtime.states import ended
from tests.waiting import until

pytestmark = pytest.mark.hosts
FOR_EVER = 10**6
EVERY = 10


@cache
def plan():
    return two_machines()


def start(hosts, folder, **options):
    asked = {"steps": FOR_EVER, "device": "cpu", "checkpoint_every": EVERY, "retries": 1} | options
    return launch(plan(), "dask", scheduler=hosts.scheduler_address, folder=folder, **asked)


def with_a_checkpoint(run):
    reached(run, lambda progress: progress.checkpoints and len(progress.steps) > EVERY + 2)


def fill(folder):
    """Write until the disk is full."""
    with contextlib.suppress(OSError), (folder / "full").open("ab", buffering=0) as stream:
        while stream.write(bytes(4096)):
            pass


@contextlib.contextmanager
def small_disk(folder):
    """A disk of 16 MiB for the launcher."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "small", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def weights(saved):
    file = saved.with_suffix(".pt")
    dcp_to_torch_save(saved, file)
    return torch.load(file)


def link_ratio(run):
    drift = run.drift()
    return None if drift is None else next((link.ratio for link in drift.links if len(link.nodes) == 2), None)


def test_a_link_that_becomes_slow_is_named_and_the_run_goes_on_under_the_better_plan(pair, run_folder) -> None:
    for host in (0, 1):
        pair.limit(host, "1000mbit")
    there = {"target": "dask", "scheduler": pair.scheduler_address, "device": "cpu"}
    shape = {"num_microbatches": 4, "num_layers": 4, "precision": "float32"}
    plan = ax.baseline("gpt-tiny", "2x1:cpu", "data-parallel", **shape)
    run = launch(plan, steps=FOR_EVER, folder=run_folder / "a", **there)
    before = reached(run, lambda _: link_ratio(run))

    for host in (0, 1):
        pair.limit(host, "8mbit")
    reached(run, lambda _: link_ratio(run) > 3 * before)
    # The samples before the limit leave.
    seen = len(run.progress.steps)
    reached(run, lambda progress: len(progress.steps) > seen + 15)
    drift = run.drift()
    # Where other tests share the cores, the compute of the stage is named as well, perhaps before the link.
    assert any(isinstance(part, LinkDrift) for part in drift.found)
    assert any(line.startswith("link node0 – node1 takes ") for line in drift.lines)
    planned, measured = plan.cluster.between_nodes, drift.cluster.between_nodes
    assert measured.bandwidth < planned.bandwidth / 10
    better = ax.better_plan(plan, drift.cluster)
    assert len(better.best.stages) == 2

    step = run.checkpoint()
    reached(run, lambda progress: [kept for kept in progress.checkpoints if kept.step >= step])
    step = run.progress.checkpoints[-1].step  # later than asked for where the request reached the ranks too late
    run.stop()
    first = {s.step: s.loss for s in ended(run).steps}
    second = ended(launch(better.best, steps=step + 12, resume=run.folder, folder=run_folder / "b", **there))
    assert second.steps[0].step == step

    # The losses without slow links and without a change of plan: at the beginning, and from the checkpoint on.
    here = {"device": "cpu"}
    beginning = ended(launch(plan, steps=15, folder=run_folder / "d", **here))
    assert all(first[s.step] == pytest.approx(s.loss, abs=1e-4) for s in beginning.steps)
    unchanged = ended(launch(plan, steps=step + 12, resume=run.folder, folder=run_folder / "c", **here))
    losses = {s.step: s.loss for s in unchanged.steps}
    assert all(loss == pytest.approx(losses[s], abs=1e-4) for s, loss in first.items() if s in losses)
    assert all(s.loss == pytest.approx(losses[s.step], abs=1e-3) for s in second.steps)


def test_a_run_that_loses_a_host_goes_on_with_the_other_one_to_the_same_weights(pair, run_folder) -> None:
    steps = 60
    ended(launch(plan(), steps=steps, folder=run_folder / "whole", save=run_folder / "a", device="cpu"))
    run = start(pair, run_folder / "run", steps=steps, save=run_folder / "b")
    with_a_checkpoint(run)
    pair.kill(1)
    result = ended(run)
    (retry,) = result.retries
    assert "node1 is gone" in retry.reason
    assert f"under another plan, 1 stage on 1x1:cpu: 1x1, on node0 ({pair.address(0)})" in retry.where
    assert retry.lost_steps <= 2 * EVERY
    assert [s.step for s in result.steps] == list(range(steps))
    assert run.ranks == (0,)
    expected, found = weights(run_folder / "a"), weights(run_folder / "b")
    assert expected.keys() == found.keys()
    assert max(float((found[name] - value).abs().max()) for name, value in expected.items()) < 1e-6
    assert json.loads((run_folder / "run" / "attempts.json").read_text())[0]["folder"] == "attempt-2"
    assert (result.folder / "measured.json").is_file()
    assert no_rank_is_left(pair)


def test_a_run_whose_rank_is_killed_goes_on_with_both_hosts_and_the_same_plan(pair, run_folder) -> None:
    run = start(pair, run_folder)
    with_a_checkpoint(run)
    there = {process.pid: process for process in pair.ranks(1)}
    (rank,) = (process for process in there.values() if process.ppid() in there)
    rank.kill()
    (retry,) = reached(run, lambda progress: progress.retries)
    assert "was killed: signal 9" in retry.reason
    assert retry.lost_steps <= 2 * EVERY
    assert retry.where == f"on node0 ({pair.address(0)}), node1 ({pair.address(1)})"
    reached(run, lambda progress: len(progress.steps) > retry.first_step + 2)
    run.stop()
    assert ended(run).stopped
    assert no_rank_is_left(pair)


def test_a_run_whose_link_is_cut_goes_on_with_the_host_that_is_left(pair, run_folder) -> None:
    run = start(pair, run_folder)
    with_a_checkpoint(run)
    pair.cut(1)
    (retry,) = reached(run, lambda progress: progress.retries)
    assert "does not answer" in retry.reason
    reached(run, lambda progress: len(progress.steps) > retry.first_step + 2)
    assert run.ranks == (0,)
    until(lambda: not pair.ranks(1), "the host without a link ends its ranks itself")
    run.stop()
    assert ended(run).stopped
    assert no_rank_is_left(pair)


def test_a_host_that_is_back_is_used_again_to_the_same_weights(pair, run_folder, monkeypatch) -> None:
    monkeypatch.setattr(tuning, "HOSTS_BACK_SECONDS", 0.5)
    run = start(pair, run_folder / "run", retries=1)
    with_a_checkpoint(run)
    pair.cut(1)
    (lost,) = reached(run, lambda progress: progress.retries)
    reached(run, lambda progress: len(progress.steps) > lost.first_step + 2)
    pair.restore(1)
    _, back = reached(run, lambda progress: len(progress.retries) == 2 and progress.retries)
    assert (lost.failed, back.failed) == (True, False)
    assert str(back).startswith("attempt 2 was ended: All hosts answer again. Attempt 3 goes on from step ")
    assert back.where.startswith("under another plan, 2 stages on 2x1:cpu: 1x1, 1x1, on node0 (")
    assert back.lost_steps <= 2 * EVERY
    assert run.ranks == (0, 1)
    reached(run, lambda progress: len(progress.steps) > back.first_step + 2)
    run.stop()
    found = [step.loss for step in ended(run).steps]
    whole = ended(launch(plan(), steps=len(found), folder=run_folder / "whole", device="cpu"))
    assert found == pytest.approx([step.loss for step in whole.steps], abs=1e-5)
    assert no_rank_is_left(pair)


def test_without_its_scheduler_a_run_ends_though_it_may_be_retried(pair, run_folder, caplog) -> None:
    run = start(pair, run_folder)
    with_a_checkpoint(run)
    (process,) = (p for p in pair.processes(0) if "distributed.cli.dask_scheduler" in p.cmdline())
    process.kill()
    with pytest.raises(RunError, match=r"The Dask scheduler is gone: .*Not retried: .*cannot be reached"):
        ended(run)
    assert no_rank_is_left(pair)
    assert [record for record in caplog.records if record.name.startswith("distributed")] == []
    assert [why.partition(":")[0] for why in run.progress.failures] == ["The Dask scheduler is gone"]


def test_a_loss_that_is_no_number_is_not_retried(pair, run_folder) -> None:
    run = start(pair, run_folder, learning_rate=1e25, checkpoint_every=1, retries=3)
    with pytest.raises(RunError, match=r"The loss is not a number: .*Not retried: it would happen again"):
        ended(run)
    assert run.progress.retries == ()
    assert no_rank_is_left(pair)


@pytest.mark.parametrize("place", ["launcher", "host"])
def test_a_full_disk_of_the_launcher_or_a_host_is_named_and_not_retried(place, pair, run_folder) -> None:
    with pair.small_disk(1, "16m") if place == "host" else small_disk(run_folder) as small:
        run = start(pair, run_folder if place == "host" else small / "run", retries=3)
        with_a_checkpoint(run)

        def full_and_ended():
            fill(small)  # again: checkpoints that the launcher has are removed
            return run.wait(0)

        until(full_and_ended, lambda: run.progress, pause=run.wait)
        with pytest.raises(RunError, match=r"(full|No space left).*Not retried: it would happen again"):
            run.result(0)
        assert run.progress.retries == ()
        assert no_rank_is_left(pair)
