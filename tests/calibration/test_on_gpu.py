"""The script for a GPU machine runs end to end without a GPU, and goes on where it was stopped."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from alpa_explore.cluster.presets import load_preset
from benchmarks import on_gpu
from tests.architecture.sources import ROOT

Patch = pytest.MonkeyPatch


def call(folder: Path, patch: Patch, *more: str) -> int:
    patch.setattr(sys, "argv", ["on_gpu.py", "--folder", str(folder), "--device", "cpu", "--quick", *more])
    return on_gpu.main()


@pytest.mark.sweep(kept=0)  # of its steps each is tested by itself: calibrate, predict, plan, verify, launch
@pytest.mark.distributed
def test_all_steps_run_and_a_second_call_has_nothing_to_do(tmp_path: Path, monkeypatch: Patch) -> None:
    command = [sys.executable, "benchmarks/on_gpu.py", "--folder", str(tmp_path), "--device", "cpu", "--quick"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    state = json.loads((tmp_path / "on_gpu.json").read_text())
    assert {name: step["state"] for name, step in state["steps"].items()} == dict.fromkeys(on_gpu.SHARES, "done")
    assert [run["status"] for run in state["runs"].values()] == ["ok"] * 4
    with (tmp_path / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["recompute"] for row in rows] == ["none", "full"] * 2
    assert all(float(row["step_s"]) > 0 and row["framework"] == "eager" for row in rows)
    assert all(prediction["seconds"] > 0 for prediction in state["predictions"].values())
    assert state["predict"]["code"] == 0, state["predict"]["errors"]
    assert [p["refused"] for p in state["predictions"].values()] == [None] * 4
    assert all(p["priced_seconds"] > 0 for p in state["predictions"].values())
    with (tmp_path / "predictions.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["configuration"] for line in lines] == list(state["runs"])
    assert all(float(line["planned_ratio"]) > 0 and float(line["priced_ratio"]) > 0 for line in lines)
    assert json.loads(state["programs"]["verify gpt-tiny float32"]["output"])["passed"]
    assert state["programs"]["two ranks on one device"] == {"works": True}

    monkeypatch.setattr(on_gpu, "measure", None)  # it would be called
    assert call(tmp_path, monkeypatch) == 0


@pytest.mark.slow
def test_what_a_process_died_of_is_not_tried_again(tmp_path: Path, monkeypatch: Patch) -> None:
    first = on_gpu.configurations(quick=True)[0]
    steps = {name: {"state": "done", "seconds": 1.0} for name in ("calibrate", "predict", "programs")}
    (tmp_path / "on_gpu.json").write_text(json.dumps({"steps": steps, "runs": {first.key: {"status": "started"}}}))
    tried = []

    def train_one(each: on_gpu.Configuration, *_: object, **__: object) -> dict[str, float]:
        tried.append(each)
        if len(tried) == 2:
            raise on_gpu.torch.OutOfMemoryError("too little memory")
        return {"step_s": 0.5, "params_b": 1.0, "memory_bytes": 2**30}

    monkeypatch.setattr(on_gpu, "train_one", train_one)
    assert call(tmp_path, monkeypatch) == 0
    assert tried == on_gpu.configurations(quick=True)[1:]
    with (tmp_path / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["failed", "ok", "oom", "ok"]
    assert rows[1]["memory_gib"] == "1.0"
    assert float(rows[1]["tokens_s_gpu"]) == 2 * 2 * 32 / 0.5


@pytest.mark.parametrize("kind", [on_gpu.Overtime, RuntimeError])
def test_a_run_that_the_end_of_the_time_broke_off_is_tried_again_and_only_named_steps_are_run(
    kind: type[Exception], tmp_path: Path, monkeypatch: Patch
) -> None:
    def cut_off(*_: object, **__: object) -> dict[str, float]:
        try:
            signal.pause()
        except on_gpu.Overtime as error:
            raise kind("as the compiler tells it") from error
        return {}

    monkeypatch.setattr(on_gpu, "train_one", cut_off)
    assert call(tmp_path, monkeypatch, "--only", "train", "--minutes", "0.01") == 1
    state = json.loads((tmp_path / "on_gpu.json").read_text())
    assert state["runs"] == {}
    assert {name: step["state"] for name, step in state["steps"].items()} == {"train": "over time"}


def test_time_that_is_over_is_told_and_what_was_found_stays(tmp_path: Path, monkeypatch: Patch) -> None:
    assert call(tmp_path, monkeypatch, "--minutes", "0") == 1
    state = json.loads((tmp_path / "on_gpu.json").read_text())
    assert state["steps"]["train"]["state"] == "over time"
    with pytest.raises(on_gpu.Overtime), on_gpu.at_most(0.05):
        signal.pause()


def test_there_are_enough_configurations_and_each_has_a_name_of_its_own() -> None:
    found = on_gpu.configurations(quick=False)
    assert len(found) >= 20
    assert len({each.key for each in found}) == len(found)
    assert {each.framework for each in found} == {"eager", "compiled"}
    assert {each.recompute for each in found} == {"none", "full"}
    assert {type(each.config).__name__ for each in found} == {"GPTConfig", "DecoderConfig"}


@pytest.mark.parametrize(
    ("gpu", "preset"),
    [
        ("nvidia-a100-sxm4-80gb", "a100-80gb"),
        ("nvidia-a100-sxm4-40gb", "a100-40gb"),
        ("nvidia-h100-80gb-hbm3", "h100-80gb"),
        ("nvidia-h200", "h200"),
        ("nvidia-gb200", "gb200"),
        ("tesla-v100-sxm2-16gb", "v100"),
        ("something-new", "h100"),
    ],
)
def test_the_datasheet_is_that_of_the_gpu(gpu: str, preset: str) -> None:
    assert load_preset(on_gpu.matching_preset(gpu))[0].name == load_preset(preset)[0].name
