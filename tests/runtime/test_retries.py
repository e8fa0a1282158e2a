"""Retries on one machine: what may be retried, under which plan, and what the user is told."""

import asyncio
import json
import subprocess
import sys
from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore.errors import ExecutorError, OptionError, RunError
from alpa_explore.runtime import tuning
from alpa_explore.runtime.attempts import check_again, check_replanned, cluster_left, ended_for_good, plan_again, words
from alpa_explore.runtime.checkpoints.description import find_checkpoint
from alpa_explore.runtime.launch import launch
from alpa_explore.runtime.measured import load_measured
from alpa_explore.runtime.reports import LogReader
from alpa_explore.runtime.targets import dask_host
from alpa_explore.runtime.targets.dask_cluster import usable
from alpa_explore.runtime.targets.dask_host import HostFacts
from alpa_explore.runtime.targets.local import environment
from tests.runtime.clock import Clock, run_on
from tests.runtime.plans import small_plan, two_machines
from tests.runtime.states import ended, gone, processes_of
from tests.waiting import limit_seconds, until


@pytest.fixture(scope="module")
def plan():
    return small_plan()


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"retries": 1}, r"only be retried from checkpoints: retries=1 without checkpoints\. Give --checkpoint-every"),
        ({"retries": -1, "checkpoint_every": 2}, r"cannot be retried so often: -1"),
        ({"retries": 1, "checkpoint_every": 2, "target": "slurm"}, r"watched from here.*target slurm"),
        ({"retries": 1, "checkpoint_every": 2, "record": True}, r"compared with one process cannot be retried"),
        ({"replan": lambda old, _: old}, r"Nothing is planned again without retries"),
    ],
)
def test_what_cannot_be_retried_is_refused_at_once(asked, told, plan, tmp_path) -> None:
    with pytest.raises(OptionError, match=told):
        launch(plan, folder=tmp_path / "run", device="cpu", **asked)
    assert not (tmp_path / "run").exists()


def test_only_a_fault_that_may_pass_is_retried_and_not_more_often_than_asked() -> None:
    lost = ExecutorError("A worker is lost", found="w", remedy="Look.")
    check_again(lost, 2, 2)
    with pytest.raises(RunError, match="attempt 3 of 3") as often:
        check_again(lost, 3, 2)
    final = ended_for_good(lost, often.value)
    assert isinstance(final, ExecutorError)
    assert str(final) == "A worker is lost: w. Look. Not retried: this was attempt 3 of 3."
    with pytest.raises(RunError, match="it would happen again"):
        check_again(RunError("The loss is not a number", found="nan", remedy="Look."), 1, 2)


@pytest.mark.slow
def test_a_plan_for_what_is_left_has_the_same_microbatches_and_another_pipeline() -> None:
    old = two_machines()
    new = plan_again(replace(old, details=None), cluster_left(old, 1, 1), None, allow_import=False)
    assert (new.cluster.devices, words(new)) == (1, "1 stage on 1x1:cpu: 1x1")
    assert (new.model.samples, new.options.num_microbatches) == (old.model.samples, old.options.num_microbatches)
    check_replanned(new, old, cluster_left(old, 1, 1))
    with pytest.raises(OptionError, match="more devices than are left"):
        check_replanned(old, old, cluster_left(old, 1, 1))
    other = ax.baseline("gpt-tiny", "1x1:cpu", "inter-only", num_microbatches=2, num_layers=1)
    with pytest.raises(OptionError, match="another model"):
        check_replanned(other, old, cluster_left(old, 1, 1))


def test_a_worker_that_was_lost_is_not_waited_for_unless_no_other_one_is_listed() -> None:
    here = HostFacts(name="n", address="10.0.0.1", interface=None, machine="m", devices=1, visible=(), code="")

    class Cluster:
        """Workers that answer after so many seconds."""

        def __init__(self, **seconds: float) -> None:
            self.seconds = {f"tcp://10.0.0.{name[1:]}:1": after for name, after in seconds.items()}

        async def nthreads(self):
            return dict.fromkeys(self.seconds, 1)

        async def run(self, function, *_arguments, workers):
            await asyncio.sleep(self.seconds[workers[0]])
            return {workers[0]: here if function is dask_host.facts else {}}

    def left(cluster, *lost):
        clock = Clock()
        return list(run_on(clock, usable(cluster, "cpu", lost))), clock.seconds

    one, two = "tcp://10.0.0.1:1", "tcp://10.0.0.2:1"
    slow, quick = tuning.LOST_SECONDS + 0.1, tuning.LOST_SECONDS - 0.1
    both = Cluster(w1=slow, w2=slow)
    assert left(both)[0] == [one, two]
    assert left(both, two)[0] == [one], "one that takes its time may be well, one that was silent before is not"
    assert left(Cluster(w1=slow, w2=quick), two)[0] == [one, two], "a link that works again"
    assert left(both, one, two)[0] == [one, two], "there is no other one"
    found, seconds = left(Cluster(w1=quick, w2=60.0), two)
    assert (found, seconds) == ([one], pytest.approx(tuning.LOST_SECONDS + quick))
    found, seconds = left(Cluster(w1=quick, w2=60.0))
    assert (found, seconds) == ([one], pytest.approx(tuning.ASK_LEFT_SECONDS + quick))


@pytest.mark.distributed
def test_the_command_says_what_failed_and_from_where_it_goes_on(plan, tmp_path) -> None:
    plan.save(tmp_path / "a.plan.json")
    folder, steps = tmp_path / "run", 300
    words = ["launch", tmp_path / "a.plan.json", "--steps", steps, "--device", "cpu", "--folder", folder]
    command = subprocess.Popen(
        [sys.executable, "-m", "alpa_explore.cli", *map(str, words), "--checkpoint-every", "20", "--retries", "1"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: (folder / "checkpoints" / "step-000020").exists() or command.poll() is not None, "step 20 is kept")
    processes_of(folder)["rank-0"].kill()
    out, said = command.communicate(timeout=limit_seconds())
    assert command.returncode == 0, said
    (retry,) = json.loads((folder / "attempts.json").read_text())
    first = retry["first_step"]
    assert f"attempt 1 failed: {retry['reason']} Attempt 2 goes on from step {first} (" in said
    assert f"{retry['reason']} Looking for where the run can go on." in said
    assert retry["lost_steps"] <= 40
    printed = [json.loads(line)["step"] for line in out.splitlines()]
    again = printed.index(first, printed.index(first) + 1) if printed.count(first) == 2 else printed.index(first)
    assert printed[:again] == list(range(again))
    assert printed[again:] == list(range(first, steps))
    assert find_checkpoint(folder)[1].step == steps
    assert LogReader(folder).folder == folder / "attempt-2"
    assert load_measured(folder).measured_iteration_seconds > 0
    assert not (folder / "checkpoints").exists(), "those of the last attempt are enough"
    gone(folder / "attempt-2")


@pytest.mark.distributed
def test_an_error_in_the_users_data_is_not_retried(plan, tmp_path) -> None:
    from alpa_explore.models.recipe import build_from_recipe

    recipe = build_from_recipe(plan.model.recipe, plan.model.samples, device="cpu")

    def data(number):
        if number == 6:
            raise ValueError("record 6 is damaged")
        return recipe.microbatch(number) if recipe.microbatch else recipe.example_inputs

    run = launch(
        plan,
        folder=tmp_path / "run",
        model=recipe.model,
        loss=recipe.loss,
        data=data,
        device="cpu",
        checkpoint_every=1,
        retries=2,
    )
    with pytest.raises(RunError, match=r"record 6 is damaged.*Not retried: it would happen again"):
        ended(run)
    assert run.progress.retries == ()
    gone(run.folder)
