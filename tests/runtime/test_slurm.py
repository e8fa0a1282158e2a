"""The script of the target slurm, run by a real Slurm."""

from __future__ import annotations

import json
import time

import psutil
import pytest

from alpa_explore.runtime.launch import launch
from alpa_explore.runtime.measured import load_measured
from tests.runtime.plans import two_machines
from tests.runtime.slurm import missing, slurm

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if lacks := missing():
        pytest.skip(lacks)
    with slurm(tmp_path_factory.mktemp("slurm")) as running:
        yield running


def test_sbatch_runs_the_plan_on_two_nodes(cluster, tmp_path, losses) -> None:
    folder = tmp_path / "a folder, 100%"
    launch(two_machines(), "slurm", steps=2, folder=folder, device="cpu").result(60)
    shown = cluster.finish(cluster.submit(folder / "slurm.sh"), 120)
    log = (folder / f"slurm-{shown['JobId']}.log").read_text()
    assert (shown["JobState"], shown["NumNodes"]) == ("COMPLETED", "2"), log
    events = [json.loads(line) for line in (folder / "rank-1.jsonl").read_text().splitlines()]
    assert [e["loss"] for e in events if e["event"] == "step"] == pytest.approx(losses, rel=1e-6)
    assert load_measured(folder).measured_iteration_seconds > 0
    assert "An iteration of mlp-tiny under 1f1b on cpu took" in log


def test_a_rank_that_fails_ends_the_job_on_both_nodes(cluster, tmp_path) -> None:
    folder = tmp_path / "run"
    launch(two_machines(), "slurm", steps=10**6, folder=folder, device="cpu").result(60)
    (job_of_rank_1,) = (folder / "job").glob("rank-1*")
    job_of_rank_1.write_bytes(b"damaged")
    start = time.monotonic()
    shown = cluster.finish(cluster.submit(folder / "slurm.sh"), 60)
    assert shown["JobState"] == "FAILED"
    assert time.monotonic() - start < 30
    assert not (folder / "measured.json").exists()


def test_a_job_that_is_cancelled_leaves_no_process(cluster, tmp_path) -> None:
    folder = tmp_path / "run"
    launch(two_machines(), "slurm", steps=10**6, folder=folder, device="cpu").result(60)
    job = cluster.submit(folder / "slurm.sh")
    end = time.monotonic() + 60
    while not (folder / "rank-1.jsonl").exists() or '"step"' not in (folder / "rank-1.jsonl").read_text():
        assert time.monotonic() < end, cluster.ask("scontrol", "show", "job", job)
        time.sleep(0.1)
    assert workers_of(folder)
    cluster.ask("scancel", job)
    assert cluster.finish(job, 30)["JobState"] == "CANCELLED"
    end = time.monotonic() + 15
    while workers_of(folder) and time.monotonic() < end:
        time.sleep(0.1)
    assert not workers_of(folder)


def workers_of(folder):
    """The processes of torchrun and of the ranks of a run."""
    every = psutil.process_iter(["cmdline"])
    return [p for p in every if str(folder) in (words := p.info["cmdline"] or []) or f"{folder}/run.sh" in words]
