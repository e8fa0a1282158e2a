"""Checkpoints: what was written is what is read, under any plan; nothing that is broken, or a stranger's, is taken."""

import itertools
import json
import os
import shutil
import struct
import tempfile
import threading
import zipfile
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import alpa_explore as ax
from alpa_explore.cli.running.launch import follow
from alpa_explore.errors import CheckpointError, OptionError, RunError
from alpa_explore.programs.execution.execute import RankExecutor, cut
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.runtime.checkpoints.description import (
    STATE,
    WEIGHTS,
    find_checkpoint,
    sealed,
    step_name,
    writing_folder,
)
from alpa_explore.runtime.checkpoints.keeper import CheckpointKeeper
from alpa_explore.runtime.checkpoints.layout import shares
from alpa_explore.runtime.checkpoints.stored import write_shard
from alpa_explore.runtime.job import RunOptions, job_files, read_job, write_jobs
from alpa_explore.runtime.launch import launch, request_of
from alpa_explore.runtime.ranks.checkpoint import StateWriter, boxes_of, pieces, restore_optimizers
from alpa_explore.runtime.reports import EventReader
from tests.programs.cases import Case, at_random, optimal
from tests.programs.transforms import divided
from tests.runtime.clock import Clock
from tests.runtime.states import ended
from tests.runtime.trained import Trained, assert_holds, mlp_plan, restored, written
from tests.waiting import until

PIPELINE = [((0, 0), ()), ((1, 2), (2,)), ((3, 3), ())]
TWO = [((0, 1), (2,)), ((2, 3), (2,))]
FOUR = [((k, k), (2,)) for k in range(4)]
ONE = [((0, 3), (2, 2))]


def ways(*kinds):
    return lambda problem: divided(problem, kinds)


PLANS = {
    "one device": ([((0, 3), ())], optimal, {}),
    "pipeline of 1+2+1": (PIPELINE, optimal, {}),
    "2+2, strategies at random, halves": (TWO, at_random(0), {"schedule": "zb-h1"}),
    "data·tensor": (ONE, ways("data", "tensor"), {}),
    "zero·zero": (ONE, ways("zero", "zero"), {}),
    "zero·tensor": (ONE, ways("zero", "tensor"), {}),
    "interleaved": (FOUR, ways("tensor"), {"schedule": "interleaved-1f1b", "turns": 2}),
}


@pytest.mark.sweep(kept=1)
@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "sgd_momentum"])
def test_state_is_the_same_to_the_bit_under_every_other_plan(optimizer, tmp_path) -> None:
    case = Case("gpt-tiny", num_microbatches=4, optimizer=optimizer)
    trained = Trained(case.graph, {t: v for t, v in case.state.items() if t not in case.graph.inputs})
    programs = {name: case.program(stages, choose, **more) for name, (stages, choose, more) in PLANS.items()}
    moments = {"adam": ("exp_avg", "exp_avg_sq", "step"), "sgd_momentum": ("momentum_buffer",)}[optimizer]
    name = case.graph.parameters[0].name
    assert {f"optimizer.state.{name}.{key}" for key in moments} <= set(trained.wanted)
    folders = {n: written(tmp_path / n, program, trained.ranks(program)) for n, program in programs.items()}
    for folder in folders.values():
        assert_holds(folder, trained.wanted)
    # Each plan goes on from the checkpoint of the one before, and the first from that of the last.
    names = [list(programs)[-1], *programs]
    for before, after in itertools.pairwise(names):
        again = written(tmp_path / "again" / after, programs[after], restored(folders[before], programs[after]))
        assert_holds(again, trained.wanted)


def test_the_master_copies_of_16_bit_weights_are_kept(tmp_path) -> None:
    programs = [lower(mlp_plan(kind, precision="bfloat16")) for kind in ("gpipe-equal-layers", "zero-3")]
    graph = programs[0].graph
    held = {p.tensor: graph.tensors[p.tensor].shape for p in graph.parameters}
    trained = Trained(graph, {t: torch.randn(shape).bfloat16() for t, shape in held.items()})
    name = graph.parameters[0].name
    assert trained.wanted[name].dtype == torch.bfloat16
    assert not torch.equal(trained.wanted[f"optimizer.state.{name}.master"], trained.wanted[name].float())
    first = written(tmp_path / "first", programs[0], trained.ranks(programs[0]))
    second = written(tmp_path / "second", programs[1], restored(first, programs[1]))
    assert_holds(second, trained.wanted)


def test_torch_reads_weights_and_state_of_a_checkpoint(run, trained, tmp_path) -> None:
    dcp_to_torch_save(run / "checkpoints" / "step-000003", tmp_path / "all.pt")
    found = torch.load(tmp_path / "all.pt")
    assert found.keys() == trained.wanted.keys()
    assert all(torch.equal(found[name], value) for name, value in trained.wanted.items())


def test_every_archive_is_read_within_its_own_bounds(tmp_path, monkeypatch) -> None:
    """Newer Pythons refuse an archive whose last record is not where its locator says, counted from the start."""
    read = zipfile.ZipFile
    ends = []

    def checked(stream):
        size = stream.seek(0, os.SEEK_END)
        stream.seek(size - 42)  # the locator, then the last record
        signature, _, offset, _ = struct.unpack("<4sLQL", stream.read(20))
        ends.append((signature, size - 42 - offset))
        return read(stream)

    monkeypatch.setattr(zipfile, "ZipFile", checked)
    tensors = [torch.full((300,), float(n)) for n in range(3)]
    write_shard(tmp_path, 0, [(str(n), (300,), ((0, 300),), t) for n, t in enumerate(tensors)])
    assert ends == [(b"PK\6\7", 56)] * 3  # the record of fixed size stands right before its locator
    content = (tmp_path / "__0_0.distcp").read_bytes()
    for tensor, entry in zip(tensors, json.loads((tmp_path / "part-0.json").read_text()), strict=True):
        numbers = content[entry["data_bytes"] : entry["data_bytes"] + tensor.nbytes]
        assert numbers == tensor.numpy().tobytes()


def test_replicas_are_written_once_and_the_work_is_shared(tmp_path) -> None:
    case = Case("mlp-tiny", num_microbatches=8)
    program = case.program(ONE, ways("data", "data"))
    trained = Trained(case.graph, {t: v for t, v in case.state.items() if t not in case.graph.inputs})
    folder = written(tmp_path / "run", program, trained.ranks(program))
    held = sum(value.nbytes for value in trained.wanted.values())
    sizes = [path.stat().st_size for path in folder.glob("*.distcp")]
    assert len(sizes) == 4
    assert held < sum(sizes) < 1.5 * held + 2**16 * 4
    assert max(sizes) < 0.6 * sum(sizes)


def test_the_last_two_are_kept_and_a_runs_newest_whole_one_is_taken(run) -> None:
    home = run / "checkpoints"
    assert sorted(p.name for p in home.iterdir()) == ["step-000002", "step-000003"]
    assert find_checkpoint(run)[0] == home / "step-000003"
    assert find_checkpoint(home / "step-000002")[1].step == 2
    found = find_checkpoint(run)[1]
    assert (found.step, found.next_sample, found.seed, found.kind) == (3, 192, 0, STATE)
    shard = home / "step-000003" / "__1_0.distcp"
    os.truncate(shard, shard.stat().st_size - 1)
    assert find_checkpoint(run)[0] == home / "step-000002"
    with pytest.raises(CheckpointError, match=r"cut off or damaged: .*__1_0.distcp has .* Beside it: step-000002"):
        find_checkpoint(home / "step-000003")


def _truncated(folder):
    os.truncate(folder / "__1_0.distcp", 10)


def _flipped(name):
    def damage(folder):
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 4
        (folder / name).write_bytes(content)

    return damage


def _a_pipe(folder):
    (folder / "checkpoint.json").unlink()
    os.mkfifo(folder / "checkpoint.json")


DAMAGE = {
    "truncated": (_truncated, "__1_0.distcp has 10 bytes"),
    "missing": (lambda folder: (folder / "__0_0.distcp").unlink(), "__0_0.distcp is missing"),
    "no description": (lambda folder: (folder / "checkpoint.json").unlink(), "checkpoint.json: No such file"),
    "a pipe": (_a_pipe, "it is a pipe or a device"),
    "no JSON": (lambda folder: (folder / "checkpoint.json").write_text("{"), "cut off or no JSON"),
    "newer": (
        lambda folder: (folder / "checkpoint.json").write_text('{"format": "alpa_explore.checkpoint", "version": 2}'),
        "newer format: version 2",
    ),
    "a bit of the numbers": (_flipped("__0_0.distcp"), "the content of __0_0.distcp has changed"),
    "a bit of the index": (_flipped("index.json"), "the content of index.json has changed"),
    "a bit of the metadata": (_flipped(".metadata"), "the content of .metadata has changed"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_newest_checkpoint_is_passed_over_for_the_one_before_and_told(damage, run, tmp_path, capsys) -> None:
    change, reason = DAMAGE[damage]
    change(run / "checkpoints" / "step-000003")
    resumed = launch(mlp_plan(), "torchrun", resume=run, folder=tmp_path / "new", steps=9, device="cpu")
    follow(resumed)
    ended(resumed)
    assert resumed.progress.first_step == 2
    (told,) = resumed.progress.passed_over
    assert f"{run / 'checkpoints' / 'step-000003'}: {reason}" in told or reason in told
    assert f"passed over: {told}" in capsys.readouterr().err
    written = json.loads((tmp_path / "new" / "run.json").read_text())
    assert (written["options"]["first_step"], written["passed_over"]) == (2, [told])
    change(run / "checkpoints" / "step-000002")
    with pytest.raises(CheckpointError) as raised:
        ended(launch(mlp_plan(), "torchrun", resume=run, folder=tmp_path / "none", steps=9, device="cpu"))
    assert reason in str(raised.value)


def test_a_crash_while_ranks_write_leaves_the_one_before_whole(run, mlp, trained) -> None:
    executors, share = list(trained.ranks(mlp)), shares(mlp)
    reports = []
    keeper = CheckpointKeeper(run, mlp.ranks, lambda: reports)
    for place, executor in enumerate(executors):
        assert not (run / "checkpoints" / "step-000004").exists()
        report = {"event": "checkpoint", **StateWriter(run, place, executor, share[executor.rank]).state(4)}
        assert find_checkpoint(run)[1].step == 3
        with pytest.raises(CheckpointError, match="The checkpoint is not complete"):
            find_checkpoint(writing_folder(run, "step-000004"))
        # Where no folder is shared, the report may come before the file.
        shard = next(writing_folder(run, "step-000004").glob(f"__{place}_0*"))
        shutil.move(shard, run / "on its way")
        reports.append((executor.rank, report))
        keeper.poll()
        assert find_checkpoint(run)[1].step == 3
        shutil.move(run / "on its way", shard)
    clock = Clock()
    too_late = CheckpointKeeper(run, mlp.ranks, lambda: [(0, {**reports[0][1], "requested": True})])
    too_late.finish(60.0, clock=clock.now, pause=clock.pause)  # for rank 1
    assert clock.seconds == 0.0
    with pytest.raises(RunError, match=r"did not become whole: .* missing after 60 s"):
        CheckpointKeeper(run, mlp.ranks, lambda: reports[:1]).finish(60.0, clock=clock.now, pause=clock.pause)
    assert 60.0 < clock.seconds < 61.0
    keeper.poll()
    assert find_checkpoint(run)[1].step == 4
    assert_holds(run / "checkpoints" / "step-000004", trained.wanted)
    StateWriter(run, 0, executors[0], share[0]).state(5)
    keeper.close()
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["step-000003", "step-000004"]


def test_what_is_written_beside_is_the_state_of_its_step_whatever_the_rank_does_then(
    run, mlp, trained, monkeypatch
) -> None:
    written, go_on = write_shard, threading.Event()

    def slowly(*given: object) -> object:
        until(go_on.is_set, "the test lets it write")
        return written(*given)

    monkeypatch.setattr("alpa_explore.runtime.ranks.checkpoint.write_shard", slowly)
    reports = []
    writers = [StateWriter(run, n, rank, shares(mlp)[rank.rank]) for n, rank in enumerate(trained.ranks(mlp))]
    for writer in writers:
        note = lambda report, rank=writer.executor.rank: reports.append((rank, {"event": "checkpoint", **report}))  # noqa: E731
        assert writer.state_beside(4, note)
        for *_, value in pieces(writer.executor, writer.share, STATE):
            value.zero_()
        assert writer.writing
    keeper = CheckpointKeeper(run, mlp.ranks, lambda: reports)
    keeper.poll()
    assert find_checkpoint(run)[1].step == 3
    go_on.set()
    for writer in writers:
        writer.wait()
    keeper.poll()
    assert_holds(run / "checkpoints" / "step-000004", trained.wanted)

    (writer, *_) = writers
    monkeypatch.setattr("alpa_explore.runtime.ranks.checkpoint.available_bytes", lambda: 10)
    assert not writer.state_beside(5, reports.append), "no room for a copy"
    monkeypatch.setattr("alpa_explore.runtime.ranks.checkpoint.available_bytes", lambda: None)
    monkeypatch.setattr(
        "alpa_explore.runtime.ranks.checkpoint.write_shard", Mock(side_effect=OSError(28, "No space left on device"))
    )
    assert writer.state_beside(5, reports.append)
    with pytest.raises(RunError, match=r"The checkpoint was not written: .*No space left"):
        writer.wait()
    with pytest.raises(RunError, match="No space left"):
        writer.state(6)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4), st.booleans()), max_size=8), st.integers(1, 4))
def test_a_request_came_too_late_when_a_rank_went_past_its_step_without_writing(
    events: list[tuple[int, int, bool]], asked: int
) -> None:
    """A rank that has done `asked` steps is about to write."""
    done, written, waiting = {0: 0, 1: 0}, set(), []
    keeper = CheckpointKeeper(Path("nowhere"), (0, 1), lambda: [waiting.pop()] if waiting else [])
    for rank, step, writes in events:
        name = {"name": step_name(step), "files": {"never there": (1, "")}}
        waiting.append((rank, {"event": "checkpoint", **name} if writes else {"event": "step", "step": step}))
        keeper.poll()
        if writes:
            written.add((rank, step))
        else:
            done[rank] = step + 1
        late = [rank for rank in done if done[rank] > asked and (rank, asked) not in written]
        assert keeper.missed(asked) is bool(late)


def test_a_rank_needs_only_the_files_that_hold_its_boxes(run, mlp, trained, tmp_path) -> None:
    options = RunOptions(resume=str(run / "checkpoints" / "step-000003"), first_step=3)
    home = tmp_path / "new run"
    home.mkdir()
    write_jobs(home, mlp, options, {}, list)
    shutil.rmtree(run)  # the other run removes its checkpoint: the links hold
    names = {rank: {path.name for path in job_files(home, mlp, rank)} for rank in mlp.ranks}
    assert names[0] == {"rank-0.pickle", "index.json", "__0_0.distcp"}
    assert names[1] == {"rank-1.pickle", "index.json", "__1_0.distcp"}
    for rank in mlp.ranks:  # on a host that has no other file
        host = tmp_path / f"host {rank}"
        for path in job_files(home, mlp, rank):
            (host / path.relative_to(home)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, host / path.relative_to(home))
        job, stored = read_job(host, rank)
        executor = RankExecutor(job.program, rank, None, boxes_of(stored, job.program), learning_rate=1e-2, seed=0)
        restore_optimizers(stored, executor)
        for name, _, box, value in pieces(executor, job.share, STATE):
            assert torch.equal(value, cut(trained.wanted[name], box))


def test_a_checkpoint_that_is_cut_off_anywhere_is_refused(run) -> None:
    folder = run / "checkpoints" / "step-000003"
    for name in ("checkpoint.json", "index.json", "__0_0.distcp", "__1_0.distcp", ".metadata"):
        whole = (folder / name).read_bytes()
        for length in (0, 1, len(whole) // 2, len(whole) - 1):
            (folder / name).write_bytes(whole[:length])
            with pytest.raises(CheckpointError):
                find_checkpoint(folder)
        (folder / name).write_bytes(whole)
    assert find_checkpoint(folder)[1].step == 3


def test_what_cannot_be_resumed_is_refused_and_says_why(run, mlp, trained, tmp_path) -> None:
    plan = mlp_plan()
    resumed = partial(request_of, plan, resume=run, device="cpu")
    assert resumed(steps=4).options.learning_rate == 1e-2
    assert resumed(steps=4, learning_rate=1e-3).options.learning_rate == 1e-3
    with pytest.raises(OptionError, match="3 steps, 3 are done in the checkpoint"):
        resumed(steps=3)
    with pytest.raises(OptionError, match="another seed: 1"):
        resumed(steps=4, seed=1)
    with pytest.raises(OptionError, match="cannot be compared"):
        resumed(steps=4, record=True)
    with pytest.raises(OptionError, match="one step or more apart: 0"):
        request_of(plan, checkpoint_every=0)
    assert request_of(mlp_plan(num_microbatches=4), resume=run, steps=4, device="cpu").plan.model.samples == 16
    other = written(tmp_path / "other", mlp, trained.ranks(mlp), samples_per_iteration=32, stream_samples=16)
    with pytest.raises(OptionError, match="2 microbatches of 32 samples, 32 samples an iteration in the checkpoint"):
        request_of(plan, resume=other, steps=4, device="cpu")
    description = json.loads((other / "checkpoint.json").read_text())
    (other / "checkpoint.json").write_text(json.dumps(sealed({**description, "kind": WEIGHTS})))
    with pytest.raises(CheckpointError, match="cannot be resumed from weights alone"):
        request_of(plan, resume=other, steps=4, device="cpu")
    (tmp_path / "empty").mkdir()
    for folder, told in ((tmp_path / "empty", "has none"), (tmp_path / "nowhere", "does not exist")):
        with pytest.raises(CheckpointError, match=f"There is no checkpoint: .*{told}"):
            request_of(plan, resume=folder)


def test_another_model_optimizer_or_content_is_refused_before_a_rank_is_started(run, tmp_path) -> None:
    other = ax.capture(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)), (torch.zeros(32, 8), torch.zeros(32, 4)), "mse")
    plan = ax.plan(other, "1x1:cpu", num_microbatches=2, num_layers=1, scheduler="serial")
    own = {"model": nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)), "loss": "mse", "data": [None]}
    refused = launch(plan, resume=run, folder=tmp_path / "a", steps=9, device="cpu", **own)
    with pytest.raises(
        CheckpointError, match=r"of another model: 0\.bias is missing in the checkpoint, \[8\] float32 in"
    ):
        ended(refused)
    description = json.loads((run / "checkpoints" / "step-000003" / "checkpoint.json").read_text())
    description["optimizer"] = ["optimizer.sgd"]
    (run / "checkpoints" / "step-000003" / "checkpoint.json").write_text(json.dumps(sealed(description)))
    refused = launch(mlp_plan(), resume=run, folder=tmp_path / "b", steps=9, device="cpu")
    with pytest.raises(
        CheckpointError, match=r"another optimizer: optimizer\.sgd in the checkpoint, optimizer\.adam in"
    ):
        ended(refused)
    shard = run / "checkpoints" / "step-000002" / "__0_0.distcp"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    refused = launch(
        mlp_plan(), resume=run / "checkpoints" / "step-000002", folder=tmp_path / "c", steps=9, device="cpu"
    )
    with pytest.raises(CheckpointError, match=r"the content of __0_0.distcp has changed"):
        ended(refused)
    assert not list(tmp_path.glob("[abc]/agent-0.log"))


def test_a_keeper_reads_reports_as_they_come(run, mlp, trained) -> None:
    share = shares(mlp)
    keeper = CheckpointKeeper(run, mlp.ranks, EventReader(run, mlp.ranks))
    for place, executor in enumerate(trained.ranks(mlp)):
        report = json.dumps({"event": "checkpoint", **StateWriter(run, place, executor, share[place]).state(7)})
        with (run / f"rank-{place}.jsonl").open("a") as stream:
            stream.write(report[:50])
            stream.flush()
            keeper.poll()
            stream.write(report[50:] + "\n")
        keeper.poll()
        assert len(keeper.kept) == place
    assert keeper.kept[0].step == 7
    assert keeper.kept[0].bytes == sum(p.stat().st_size for p in keeper.kept[0].folder.iterdir()) - len(
        (keeper.kept[0].folder / "checkpoint.json").read_bytes()
    )


def test_weights_are_moved_to_where_they_shall_be_also_on_another_disk(run, mlp, trained, tmp_path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        assert os.stat(other).st_dev != os.stat(run).st_dev
        (tmp_path / "empty").mkdir()
        for save in (tmp_path / "new" / "weights", tmp_path / "empty", Path(other) / "weights"):
            share, reports = shares(mlp), []
            for place, executor in enumerate(trained.ranks(mlp)):
                report = StateWriter(run, place, executor, share[place]).weights(3, str(save))
                reports.append((place, {"event": "checkpoint", **report}))
            keeper = CheckpointKeeper(run, mlp.ranks, lambda reports=reports: reports)
            keeper.poll()
            assert [kept.folder for kept in keeper.kept] == [save]
            assert_holds(save, {name: value for name, value in trained.wanted.items() if "optimizer" not in name})
            assert [path.name for path in save.parent.iterdir() if path.name.startswith(".")] == []
            with pytest.raises(CheckpointError, match="cannot be resumed from weights alone"):
                find_checkpoint(save)
