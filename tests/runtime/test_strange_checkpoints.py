"""Checkpoints of a stranger: whatever they say, no code of theirs runs, and what cannot be is refused by name."""

import hashlib
import io
import itertools
import json
import os
import pickle
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.errors import CheckpointError, OptionError
from alpa_explore.runtime.checkpoints.description import find_checkpoint, sealed
from alpa_explore.runtime.checkpoints.stored import StoredState
from alpa_explore.runtime.launch import launch, request_of
from tests.plans.mutation import mutated
from tests.runtime.states import ended
from tests.runtime.trained import assert_holds, mlp_plan, restored, written


class Evil:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def test_a_strangers_checkpoint_is_never_unpickled(run, mlp, tmp_path) -> None:
    """Every pickle in it is replaced by one that would show, and the stranger has corrected sizes and digests."""
    folder, trace = run / "checkpoints" / "step-000003", tmp_path / "it ran"
    description = json.loads((folder / "checkpoint.json").read_text())
    (folder / ".metadata").write_bytes(pickle.dumps(Evil(trace)))
    archive = io.BytesIO()
    torch.save(Evil(trace), archive)
    index = json.loads((folder / "index.json").read_text())
    for entry in index.values():
        for chunk in entry["chunks"]:
            with (folder / chunk["file"]).open("r+b") as stream:  # of the archive only the numbers are left
                stream.seek(chunk["begin_bytes"])
                room = chunk["data_bytes"] - chunk["begin_bytes"]
                stream.write(archive.getvalue()[:room])
    for name in description["files"]:
        content = (folder / name).read_bytes()
        description["files"][name] = [len(content), hashlib.sha256(content).hexdigest()]
    (folder / "checkpoint.json").write_text(json.dumps(sealed(description)))
    torch.load(io.BytesIO(archive.getvalue()), weights_only=False)
    assert trace.exists(), "what unpickles it leaves a trace"
    trace.rmdir()
    assert find_checkpoint(run)[0] == folder
    request = request_of(mlp_plan(), resume=run, steps=5, device="cpu")
    assert request.options.first_step == 3
    assert len(list(restored(folder, mlp))) == 2
    assert not trace.exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d, i: d.update(version=0), "has the version '0'"),
        (lambda d, i: d.update(version=True), "has the version 'True'"),
        (lambda d, i: d.update(version=2), "newer format: version 2"),
        (lambda d, i: d.update(format="else"), "has the format 'else'"),
        (lambda d, i: d.update(step=-1), "-1"),
        (lambda d, i: d.update(files={"../run.json": [1, ""]}), "names the file '../run.json'"),
        (lambda d, i: d["files"].pop("index.json"), "does not name index.json"),
        (lambda d, i: d["files"].update({"__7_0.distcp": [1, ""]}), "__7_0.distcp is missing"),
        (lambda d, i: d.pop("seed"), "has no 'seed'"),
        (lambda d, i: _first(i).update(file="/etc/passwd"), "is no file of a checkpoint"),
        (lambda d, i: _first(i).update(data_bytes=10**9), "is not inside the tensor or __0_0.distcp"),
        (lambda d, i: _first(i).update(offsets=[1, 0]), "is not inside"),
        (lambda d, i: _first(i).update(sizes=[1, 1]), "are not the whole tensor"),
        (lambda d, i: next(iter(i.values())).update(dtype="load"), "'load' is no dtype"),
        (lambda d, i: next(iter(i.values())).update(dtype="quint8"), "'quint8' is no dtype"),
        (lambda d, i: next(iter(i.values())).update(dtype="bits8"), "'bits8' is no dtype"),
        (lambda d, i: _halves(_entry(i)), "two boxes of hidden.0.weight hold the same entries: those at [0, 0]"),
        (lambda d, i: _entry(i).update(chunks=[_first(i)] * 20_000), "more than 16,384"),
        (lambda d, i: _entry(i).update(shape=[1] * 100), "another number of dims|100 dims"),
        (lambda d, i: _entry(i).update(shape=[10**300, 0]), "too large"),
        (lambda d, i: _entry(i).update(shape=[10**20, 0]), "in place of a whole number"),
        (lambda d, i: _first(i).update(begin_bytes=True), "in place of a whole number"),
        (lambda d, i: d.update(seed=10**30), "in place of a whole number"),
        (lambda d, i: d.update(seed=-1), "in place of a whole number"),
        (lambda d, i: d.update(seed=1.5), "in place of a whole number"),
        (lambda d, i: d.update(step=10**309), "too large"),
        (lambda d, i: d.update(step=10**20), "in place of a whole number"),
        (lambda d, i: d.update(stream_samples=10**12), "are not divided by 1000000000000 samples"),
        (lambda d, i: d.update(stream_samples=0), "are not divided by 0 samples"),
        (lambda d, i: d.update(samples_per_iteration=10**12), "next_sample 192 is not step 3"),
        (lambda d, i: d.update(next_sample=0), "next_sample 0 is not step 3 × 64 samples"),
        (lambda d, i: d.update(learning_rate=float("nan")), "NaN is not a number"),
        (lambda d, i: d.update(learning_rate=float("inf")), "Infinity is not a number"),
        (lambda d, i: d.update(learning_rate="1"), "in place of a finite number"),
        (lambda d, i: d.update(learning_rate=-1.0), "is no learning rate"),
        (lambda d, i: d.update(kind="else"), "is no kind of checkpoint"),
        (lambda d, i: d.update(files=[]), "in place of an object"),
        (lambda d, i: next(iter(i.values())).update(chunks=None), "in place of a list"),
    ],
)
def test_a_checkpoint_that_says_what_cannot_be_is_refused(run, change, told) -> None:
    folder = run / "checkpoints" / "step-000003"
    description, index = (json.loads((folder / n).read_text()) for n in ("checkpoint.json", "index.json"))
    change(description, index)
    (folder / "index.json").write_text(json.dumps(index))
    if "index.json" in description["files"]:
        description["files"]["index.json"][0] = (folder / "index.json").stat().st_size
    (folder / "checkpoint.json").write_text(json.dumps(sealed(description)))
    with pytest.raises(CheckpointError) as raised:
        StoredState(find_checkpoint(folder)[0])
    assert any(part in str(raised.value) for part in told.split("|"))


def _first(index):
    return _entry(index)["chunks"][0]


def _entry(index):
    return index["hidden.0.weight"]


def _halves(entry):
    """Twice the first half of the tensor: as many entries as it has."""
    (chunk,) = entry["chunks"]
    half = {**chunk, "sizes": [chunk["sizes"][0] // 2, *chunk["sizes"][1:]]}
    entry["chunks"] = [half, dict(half)]


@given(st.data())
def test_boxes_are_disjoint_or_the_tensor_is_refused(run_once, data) -> None:
    """Random cuts of a tensor into boxes are taken; the same with a box moved onto another one of its size are not."""
    index = json.loads((run_once / "index.json").read_text())
    entry = index["hidden.0.weight"]
    (whole,) = entry["chunks"]
    boxes = [((0, 0), tuple(entry["shape"]))]
    for _ in range(data.draw(st.integers(0, 6))):
        number = data.draw(st.integers(0, len(boxes) - 1))
        (start, size), dim = boxes[number], data.draw(st.integers(0, 1))
        if size[dim] > 1:
            at = data.draw(st.integers(1, size[dim] - 1))
            first = tuple(at if d == dim else n for d, n in enumerate(size))
            second = tuple(n - at if d == dim else n for d, n in enumerate(size))
            moved = tuple(s + at if d == dim else s for d, s in enumerate(start))
            boxes[number : number + 1] = [(start, first), (moved, second)]
    entry["chunks"] = [{**whole, "offsets": start, "sizes": size} for start, size in boxes]
    with tempfile.TemporaryDirectory() as folder:
        for file in {chunk["file"] for tensor in index.values() for chunk in tensor["chunks"]}:
            with (Path(folder) / file).open("wb") as stream:
                stream.truncate(2**24)
        (Path(folder) / "index.json").write_text(json.dumps(index))
        assert set(StoredState(Path(folder)).tensors) == set(index)
        same = [(a, b) for a, b in itertools.permutations(range(len(boxes)), 2) if boxes[a][1] == boxes[b][1]]
        if same:
            a, b = data.draw(st.sampled_from(same))
            entry["chunks"][a]["offsets"] = entry["chunks"][b]["offsets"]
            (Path(folder) / "index.json").write_text(json.dumps(index))
            with pytest.raises(CheckpointError, match="hold the same entries"):
                StoredState(Path(folder))


@pytest.fixture(scope="module")
def run_once(tmp_path_factory, mlp, trained):
    """A checkpoint that no test changes."""
    return written(tmp_path_factory.mktemp("once") / "run", mlp, trained.ranks(mlp))


@pytest.mark.parametrize("key", ["exp_avg", "exp_avg_sq", "step", ""])
def test_a_checkpoint_without_the_optimizer_state_is_refused(key, run, tmp_path) -> None:
    folder = run / "checkpoints" / "step-000003"
    _reindexed(folder, lambda index: [index.pop(n) for n in list(index) if n.startswith("optimizer") and key in n])
    with pytest.raises(CheckpointError, match=rf"has not the optimizer state .*\.{key}.* is missing in the checkpoint"):
        ended(launch(mlp_plan(), resume=folder, folder=tmp_path / "new", steps=9, device="cpu"))


@pytest.mark.parametrize("steps", [float("nan"), -1.0, 1.5, float("inf")])
def test_a_number_of_steps_that_no_optimizer_has_done_is_refused(steps, tmp_path, mlp, trained) -> None:
    executors = list(trained.ranks(mlp))
    for executor in executors:
        for optimizer in executor.optimizers.values():
            optimizer.state["step"].fill_(steps)
    more = {"samples_per_iteration": 64, "stream_samples": 32}
    folder = written(tmp_path / "run", mlp, executors, **more)
    with pytest.raises(CheckpointError, match=r"optimizer state of the checkpoint is damaged: .*\.step is"):
        ended(launch(mlp_plan(), resume=folder, folder=tmp_path / "new", steps=9, device="cpu"))


def test_state_of_another_shape_dtype_or_name_is_refused(run, tmp_path) -> None:
    folder = run / "checkpoints" / "step-000003"
    before = (folder / "index.json").read_text()
    name = "optimizer.state.hidden.0.weight.exp_avg"
    for number, (change, told) in enumerate(
        [
            (lambda index: index.update({f"{name}_extra": index[name]}), "missing in the plan"),
            (lambda index: index[name].update(dtype="int32"), "int32 in the checkpoint"),
            (lambda index: index.update({name: index["optimizer.state.hidden.0.weight.step"]}), r"\[\] float32 in the"),
        ]
    ):
        (folder / "index.json").write_text(before)
        _reindexed(folder, change)
        with pytest.raises(CheckpointError, match=told):
            ended(launch(mlp_plan(), resume=folder, folder=tmp_path / str(number), steps=9, device="cpu"))


@given(st.integers(0, 10**9), st.data())
def test_every_field_of_a_description_is_as_it_was_written_or_the_checkpoint_is_refused(run_once, seed, data) -> None:
    """Whatever a disk or an editor changes: alone in its range, a seed or a learning rate looks as good as any."""
    said = json.loads((run_once / "checkpoint.json").read_text())
    key = data.draw(st.sampled_from(sorted(said)))
    changed, told = mutated({key: said[key]}, seed)
    body = {name: value for name, value in said.items() if name != key} | changed
    with tempfile.TemporaryDirectory() as folder:
        home = shutil.copytree(run_once, Path(folder) / "changed")
        (home / "checkpoint.json").write_text(json.dumps(body))
        if json.dumps(body, sort_keys=True) == json.dumps(said, sort_keys=True):
            assert find_checkpoint(home).description == find_checkpoint(run_once).description
        else:
            with pytest.raises(CheckpointError):
                raise AssertionError(f"{told}: {find_checkpoint(home).description}")


@pytest.mark.parametrize(
    ("name", "told"), [("step-000009", ", and holds step 3"), ("step-x", ""), ("step-3 (copy)", "")]
)
def test_a_renamed_checkpoint_is_not_passed_over_in_silence(name, told, run) -> None:
    """Names alone say which one is the newest, and which ones are kept."""
    home = run / "checkpoints"
    (home / "step-000003").rename(home / name)
    found = find_checkpoint(run)
    assert found.folder == home / "step-000002"
    (why,) = found.passed_over
    assert f"A checkpoint was renamed: {home / name} has not the name of its step{told}" in why
    assert find_checkpoint(home / name).description.step == 3
    shutil.rmtree(home / "step-000002")
    with pytest.raises(CheckpointError, match="Name this folder itself"):
        find_checkpoint(run)


@pytest.mark.sweep(kept=2)
@pytest.mark.parametrize("number", range(60))
def test_a_checkpoint_that_was_changed_anywhere_is_refused_or_read_right(number, run, mlp, trained) -> None:
    """By a stranger, who corrects sizes and digests. What is taken trains on as the one before was written."""
    folder = run / "checkpoints" / "step-000003"
    before = {name: json.loads((folder / name).read_text()) for name in ("checkpoint.json", "index.json")}
    found = set()
    for seed in range(number * 60, (number + 1) * 60):
        changed = ("checkpoint.json", "index.json")[seed % 2]
        texts = {name: json.dumps(body) for name, body in before.items()}
        body, told = mutated(before[changed], seed)
        texts[changed] = json.dumps(sealed(body) if changed == "checkpoint.json" else body)
        if changed == "index.json":
            digest = [len(texts[changed].encode()), hashlib.sha256(texts[changed].encode()).hexdigest()]
            description = before["checkpoint.json"]
            files = {**description["files"], "index.json": digest}
            texts["checkpoint.json"] = json.dumps(sealed({**description, "files": files}))
        for name, text in texts.items():
            (folder / name).write_text(text)
        try:
            description = find_checkpoint(folder, digests=True).description
            request_of(mlp_plan(), resume=folder, steps=description.step + 1, device="cpu")
            again = list(restored(folder, mlp))
            assert len(again) == 2
            index = json.loads(texts["index.json"])
            if index == before["index.json"]:
                assert_holds(folder, trained.wanted)
            found.add("read")
        except (CheckpointError, OptionError):
            found.add("refused")
        except Exception as error:
            raise AssertionError(f"seed {seed}: {changed}, {told}") from error
    assert found == {"read", "refused"}


def _reindexed(folder, change):
    """Change the index of a checkpoint, as a stranger who corrects size and digest."""
    index, description = (json.loads((folder / n).read_text()) for n in ("index.json", "checkpoint.json"))
    change(index)
    text = json.dumps(index)
    description["files"]["index.json"] = [len(text), hashlib.sha256(text.encode()).hexdigest()]
    (folder / "index.json").write_text(text)
    (folder / "checkpoint.json").write_text(json.dumps(sealed(description)))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"seed": 10**30}, "whole number of 0 to"),
        ({"seed": -1}, "whole number of 0 to"),
        ({"learning_rate": float("nan")}, "A learning rate is a number"),
        ({"learning_rate": float("inf")}, "A learning rate is a number"),
        ({"learning_rate": -1.0}, "A learning rate is a number"),
        ({"stall_seconds": float("nan")}, "stalls after some seconds"),
    ],
)
def test_numbers_that_no_run_can_have_are_refused_at_once(asked, told) -> None:
    with pytest.raises(OptionError, match=told):
        request_of(mlp_plan(), device="cpu", **asked)
