"""The script of the target slurm, run by a real Slurm."""

import json
from collections.abc import Callable, Iterator

import psutil
import pytest

from alpa_explore.runtime.launch import launch
from alpa_explore.runtime.measured import load_measured
from tests.ports import reserved_ports
from tests.runtime.plans import small_plan, two_machines
from tests.runtime.slurm import missing, slurm
from tests.runtime.states import ended, stepped_in
from tests.waiting import until

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if lacks := missing():
        pytest.skip(lacks)
    with slurm(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture
def written() -> Iterator[Callable[..., object]]:
    """Writes a job whose ranks meet at a port of their own: by default it follows from the number of the job, which
    begins at 1 in every Slurm."""
    with reserved_ports(1) as (port,):
        yield lambda **options: ended(launch(two_machines(), "slurm", ports=f"{port}", device="cpu", **options))


def test_sbatch_runs_the_plan_on_two_nodes(cluster, written, tmp_path, losses) -> None:
    folder = tmp_path / "a folder, 100%"
    written(steps=2, folder=folder)
    shown = cluster.finish(cluster.submit(folder / "slurm.sh"))
    log = (folder / f"slurm-{shown['JobId']}.log").read_text()
    assert (shown["JobState"], shown["NumNodes"]) == ("COMPLETED", "2"), log
    events = [json.loads(line) for line in (folder / "rank-1.jsonl").read_text().splitlines()]
    assert [e["loss"] for e in events if e["event"] == "step"] == pytest.approx(losses, rel=1e-6)
    assert load_measured(folder).measured_iteration_seconds > 0
    assert "An iteration of mlp-tiny under 1f1b on cpu took" in log


def test_a_job_goes_on_from_the_checkpoint_of_another(cluster, written, tmp_path) -> None:
    def run(name, steps, **options):
        written(steps=steps, folder=tmp_path / name, **options)
        shown = cluster.finish(cluster.submit(tmp_path / name / "slurm.sh"))
        assert shown["JobState"] == "COMPLETED", (tmp_path / name / f"slurm-{shown['JobId']}.log").read_text()
        events = [json.loads(line) for line in (tmp_path / name / "rank-1.jsonl").read_text().splitlines()]
        return {e["step"]: e["loss"] for e in events if e["event"] == "step"}

    first = run("first", 2, checkpoint_every=2)
    assert (tmp_path / "first" / "checkpoints" / "step-000002" / "checkpoint.json").exists()
    rest = run("rest", 3, resume=tmp_path / "first")
    assert (list(first), list(rest)) == ([0, 1], [2])
    whole = ended(launch(small_plan(), steps=3, folder=tmp_path / "whole", device="cpu"))
    assert {**first, **rest} == pytest.approx({s.step: s.loss for s in whole.steps}, rel=1e-6)


def test_a_rank_that_fails_ends_the_job_on_both_nodes(cluster, written, tmp_path) -> None:
    folder = tmp_path / "run"
    written(steps=10**6, folder=folder)
    (job_of_rank_1,) = (folder / "job").glob("rank-1*")
    job_of_rank_1.write_bytes(b"damaged")
    shown = cluster.finish(cluster.submit(folder / "slurm.sh"))
    assert shown["JobState"] == "FAILED"
    until(lambda: not workers_of(folder), lambda: f"{workers_of(folder)} have ended")
    assert not (folder / "measured.json").exists()


def test_a_job_that_is_cancelled_leaves_no_process(cluster, written, tmp_path) -> None:
    folder = tmp_path / "run"
    written(steps=10**6, folder=folder)
    job = cluster.submit(folder / "slurm.sh")
    stepped_in(folder, (0, 1))
    assert workers_of(folder)
    cluster.ask("scancel", job)
    assert cluster.finish(job)["JobState"] == "CANCELLED"
    until(lambda: not workers_of(folder), lambda: f"{workers_of(folder)} have ended")


def workers_of(folder):
    """The processes of torchrun and of the ranks of a run."""
    every = psutil.process_iter(["cmdline"])
    return [p for p in every if str(folder) in (words := p.info["cmdline"] or []) or f"{folder}/run.sh" in words]
