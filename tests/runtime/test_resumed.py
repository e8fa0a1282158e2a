"""Training that goes on from a checkpoint ends where an uninterrupted run does."""

import contextlib
import json
import os
import re
import resource
import subprocess
from functools import partial

import pytest
import torch
from torch import nn

import alpa_explore as ax
from alpa_explore.cli import main
from alpa_explore.errors import RunError
from alpa_explore.runtime.checkpoints.description import find_checkpoint
from alpa_explore.runtime.checkpoints.stored import StoredState, write_shard
from alpa_explore.runtime.folder import REQUESTED, say
from alpa_explore.runtime.launch import launch
from alpa_explore.runtime.ranks import checkpoint
from alpa_explore.runtime.reports import read_heartbeat
from tests.runtime.states import checkpointed, ended, gone, processes_of, stepped
from tests.runtime.trained import mlp_plan
from tests.waiting import limit_seconds, until

B = 3


class Tied(nn.Module):
    """Tokens in, tokens out, with one matrix at both ends of a pipeline."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.out = nn.Linear(16, 32, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        return self.out(x + self.down(self.dropout(torch.tanh(self.up(x)))))


def microbatch(number):
    generator = torch.Generator().manual_seed(number)
    tokens = torch.randint(32, (4, 8), generator=generator)
    return tokens, torch.roll(tokens, 1, 1)


def loss(output, targets):
    return nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten())


def tied(dropout=0.0):
    torch.manual_seed(0)
    model = Tied(dropout).double()
    return model, ax.capture(model, microbatch(0), loss, name="tied", optimizer="adam")


def dying(step, folder):
    """Data of which a microbatch kills the rank that asks for it, once the checkpoint of the step before is whole."""

    def data(number):
        if number == step * B + 1:
            until((folder / "checkpoints" / f"step-{step - 1:06}").is_dir, "it is whole")
            os.kill(os.getpid(), 9)
        return microbatch(number)

    return data


def damaging(folder, flag):
    """Data of which a microbatch of step 5, once, flips a bit of the newest checkpoint, and kills its rank."""

    def data(number):
        if number == 5 * B + 1 and not flag.exists():
            newest = folder / "checkpoints" / "step-000004"
            until(newest.is_dir, "it is whole")
            with contextlib.suppress(FileExistsError):  # of two ranks that see it at once, one flips the bit
                flag.touch(exist_ok=False)
                flip(newest / "__0_0.distcp")
                os.kill(os.getpid(), 9)
        return microbatch(number)

    return data


def flip(path):
    """Flip a bit in the middle of a file, whose size stays."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def weights_in(folder):
    stored = StoredState(folder)
    return {name: stored.whole(name) for name in stored.tensors}


@pytest.mark.distributed
def test_a_run_that_dies_goes_on_under_other_plans_and_loses_nothing(tmp_path) -> None:
    model, graph = tied()
    plan = partial(ax.baseline, graph, num_microbatches=B, num_layers=2, delta=2.0)
    megatron = plan("1x4:cpu", "megatron", tp=2, dp=1, pp=2)
    own = {"model": model, "loss": loss, "device": "cpu", "learning_rate": 1e-2}
    whole = launch(megatron, folder=tmp_path / "whole", steps=6, save=tmp_path / "w", data=microbatch, **own)
    wanted = [step.loss for step in ended(whole).steps]

    folder = tmp_path / "killed"
    killed = launch(megatron, folder=folder, steps=6, checkpoint_every=2, data=dying(5, folder), **own)
    with pytest.raises(RunError, match="was killed: signal 9"):
        ended(killed)
    gone(killed.folder)
    assert [kept.step for kept in killed.progress.checkpoints] == [2, 4]
    assert sorted(p.name for p in (killed.folder / "checkpoints").iterdir()) == ["step-000002", "step-000004"]

    final = weights_in(tmp_path / "w")
    assert final.keys() == dict(model.named_parameters()).keys()
    del own["learning_rate"]  # it is the checkpoint's
    zero = launch(
        plan("1x2:cpu", "zero-3"),
        folder=tmp_path / "zero",
        steps=5,
        resume=killed.folder / "checkpoints" / "step-000002",
        checkpoint_every=10,
        data=microbatch,
        **own,
    )
    losses = [step.loss for step in ended(zero).steps]
    last = launch(
        plan("1x2:cpu", "gpipe-equal-layers", pp=2),
        schedule="zb-h1",
        folder=tmp_path / "last",
        steps=6,
        resume=zero.folder,
        save=tmp_path / "l",
        data=microbatch,
        **own,
    )
    losses += [step.loss for step in ended(last).steps]
    assert losses == pytest.approx(wanted[2:], rel=1e-9)
    for name, value in weights_in(tmp_path / "l").items():
        torch.testing.assert_close(value, final[name], rtol=1e-6, atol=1e-9, msg=name)
        assert not torch.equal(value, dict(model.named_parameters())[name])


@pytest.mark.distributed
def test_one_flipped_bit_costs_a_checkpoint_and_not_the_run(tmp_path) -> None:
    model, graph = tied()
    plan = ax.baseline(graph, "1x2:cpu", "gpipe-equal-layers", num_microbatches=B, num_layers=2, delta=2.0)
    own = {"model": model, "loss": loss, "device": "cpu", "learning_rate": 1e-2, "steps": 6, "checkpoint_every": 2}
    wanted = [s.loss for s in ended(launch(plan, folder=tmp_path / "whole", data=microbatch, **own)).steps]
    folder, flag = tmp_path / "retried", tmp_path / "it died"
    run = launch(plan, folder=folder, data=damaging(folder, flag), retries=1, **own)
    assert [step.loss for step in ended(run).steps] == wanted, "to the bit"
    (retry,) = run.progress.retries
    assert retry.first_step == 2
    (why,) = run.progress.passed_over
    assert re.search(r"step-000004: the content of __0_0\.distcp has changed", why)
    told = json.loads((folder / "attempt-2" / "run.json").read_text())["passed_over"]
    assert tuple(told) == run.progress.passed_over


def holding(folder, flag):
    """Data that, in the first attempt, lets rank 1 write no part of the checkpoint of step 4."""
    original = write_shard

    def data(number, place=None):
        def held(home, *given):
            until(lambda: place.rank == 0 or "step-000004" not in str(home), "the test ends the rank")
            return original(home, *given)

        if number == 0 and place is not None and not flag.exists():
            checkpoint.write_shard = held
        return microbatch(number)

    return data


@pytest.mark.distributed
def test_a_rank_that_dies_while_a_checkpoint_is_written_beside_the_training_costs_two_at_most(tmp_path) -> None:
    """Training goes on while the checkpoint is written, and begins no other one before it is whole."""
    model, graph = tied()
    plan = ax.baseline(graph, "1x2:cpu", "gpipe-equal-layers", pp=2, num_microbatches=B, num_layers=2, delta=2.0)
    own = {"model": model, "loss": loss, "device": "cpu", "learning_rate": 1e-2, "steps": 8, "checkpoint_every": 2}
    wanted = [s.loss for s in ended(launch(plan, folder=tmp_path / "whole", data=microbatch, **own)).steps]
    folder, flag = tmp_path / "retried", tmp_path / "it died"
    run = launch(plan, folder=folder, data=holding(folder, flag), retries=1, **own)
    waits = lambda: (beat := read_heartbeat(folder, 0)) and "checkpoint of step 4 is whole" in beat.doing  # noqa: E731
    until(lambda: waits() or run.wait(0), lambda: f"{run}: rank 0 waits")
    assert len(run.progress.steps) == 6
    assert [kept.step for kept in run.progress.checkpoints] == [2]
    flag.touch()
    processes_of(folder)["rank-1"].kill()
    assert [step.loss for step in ended(run).steps] == wanted, "to the bit"
    (retry,) = run.progress.retries
    assert (retry.first_step, retry.lost_steps) == (2, 4)
    assert run.progress.passed_over == ()


@pytest.mark.distributed
def test_dropout_goes_on_with_the_numbers_of_an_uninterrupted_run(tmp_path) -> None:
    model, graph = tied(dropout=0.5)
    plan = ax.baseline(graph, "1x2:cpu", "data-parallel", num_microbatches=B, num_layers=2, delta=2.0)
    own = {"model": model, "loss": loss, "data": microbatch, "device": "cpu", "steps": 4}
    whole = launch(plan, folder=tmp_path / "whole", checkpoint_every=2, seed=3, **own)
    losses = [step.loss for step in ended(whole).steps]
    again = launch(
        plan, folder=tmp_path / "again", resume=whole.folder / "checkpoints" / "step-000002", checkpoint_every=4, **own
    )
    assert [(step.step, step.loss) for step in ended(again).steps] == list(enumerate(losses))[2:]
    assert again.progress.first_step == 2
    one, two = (weights_in(run.folder / "checkpoints" / "step-000004") for run in (whole, again))
    assert all(torch.equal(value, two[name]) for name, value in one.items())


@pytest.mark.distributed
def test_the_same_samples_are_used_where_microbatches_are_other_ones(tmp_path, capsys) -> None:
    for name, plan in (("a", mlp_plan()), ("b", mlp_plan("zero-3", num_microbatches=8))):
        plan.save(tmp_path / f"{name}.plan.json")
    run, again = tmp_path / "run", tmp_path / "again"
    words = ["launch", str(tmp_path / "a.plan.json"), "--device", "cpu", "--steps", "6", "--checkpoint-every", "3"]
    assert main([*words, "--folder", str(run)]) == 0
    said = capsys.readouterr()
    steps = [json.loads(line) for line in said.out.splitlines()]
    assert f"checkpoint of step 3 in {run / 'checkpoints' / 'step-000003'}: " in said.err
    assert f"checkpoint of step 6 in {run / 'checkpoints' / 'step-000006'}: " in said.err
    words = ["launch", str(tmp_path / "b.plan.json"), "--device", "cpu", "--steps", "6"]
    assert main([*words, "--folder", str(again), "--resume", str(run / "checkpoints" / "step-000003")]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [step["step"] for step in found] == [3, 4, 5]
    assert [s["loss"] for s in found] == pytest.approx([s["loss"] for s in steps[3:]], rel=1e-6)
    assert json.loads((again / "run.json").read_text())["checkpoints"]["stream_samples"] == 32
    assert main([*words, "--folder", str(tmp_path / "no"), "--resume", str(run)]) == 2
    assert "6 steps, 6 are done in the checkpoint" in capsys.readouterr().err


@pytest.mark.distributed
def test_a_checkpoint_can_be_asked_for_while_a_run_goes_on(tmp_path) -> None:
    model, graph = tied()
    plan = ax.baseline(graph, "1x2:cpu", "gpipe-equal-layers", pp=2, num_microbatches=B, num_layers=2, delta=2.0)
    run = launch(plan, folder=tmp_path / "run", steps=10**6, model=model, loss=loss, data=microbatch, device="cpu")
    stepped(run, 3)
    step = run.checkpoint()
    checkpointed(run)
    run.stop()
    assert ended(run).stopped
    (kept,) = run.progress.checkpoints
    assert find_checkpoint(run.folder)[1].step == kept.step
    assert len(run.progress.steps) >= kept.step >= step > 3


@pytest.mark.distributed
def test_a_request_that_comes_too_late_is_repeated_for_a_later_step(tmp_path) -> None:
    model, graph = tied()
    plan = ax.baseline(graph, "1x2:cpu", "gpipe-equal-layers", pp=2, num_microbatches=B, num_layers=2, delta=2.0)
    run = launch(plan, folder=tmp_path / "run", steps=10**6, model=model, loss=loss, data=microbatch, device="cpu")
    stepped(run, 3)
    say(run.folder, REQUESTED, 2)  # all ranks have gone past it
    checkpointed(run)
    run.stop()
    assert ended(run).stopped
    assert run.progress.checkpoints[0].step > 3


@pytest.mark.distributed
def test_a_disk_that_fills_leaves_the_checkpoint_before_whole(tmp_path) -> None:
    model, graph = tied()
    plan = ax.baseline(graph, "1x2:cpu", "data-parallel", num_microbatches=B, num_layers=2, delta=2.0)

    first = tmp_path / "run" / "checkpoints" / "step-000002"

    def data(number):
        if number == 2 * B:  # of step 2
            until(first.is_dir, "the first checkpoint is whole")
            resource.setrlimit(resource.RLIMIT_FSIZE, (2**14, 2**14))
        return microbatch(number)

    run = launch(plan, folder=tmp_path / "run", steps=6, checkpoint_every=2, model=model, loss=loss, data=data)
    with pytest.raises(RunError, match=r"The checkpoint was not written: .*step-000004.*File too large"):
        ended(run)
    assert [p.name for p in (run.folder / "checkpoints").iterdir()] == ["step-000002"]
    assert find_checkpoint(run.folder)[1].step == 2


@pytest.mark.distributed
def test_the_first_rank_of_a_script_keeps_its_checkpoints(tmp_path) -> None:
    run = launch(
        mlp_plan(), "torchrun", steps=4, checkpoint_every=2, save=tmp_path / "w", folder=tmp_path / "run", device="cpu"
    )
    ended(run)
    done = subprocess.run(
        ["bash", tmp_path / "run" / "run.sh"], capture_output=True, text=True, timeout=limit_seconds(), check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir()) == ["step-000002", "step-000004"]
    assert find_checkpoint(tmp_path / "run")[1].step == 4
    trained = weights_in(tmp_path / "run" / "checkpoints" / "step-000004")
    assert all(torch.equal(value, trained[name]) for name, value in weights_in(tmp_path / "w").items())
