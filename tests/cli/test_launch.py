"""`alpa-explore launch` and `verify`: what is said before anything is started."""

import json
import os

import pytest

from alpa_explore.cli import main
from alpa_explore.runtime import tuning
from alpa_explore.schedules.csv_file import write_csv
from tests.runtime.plans import small_plan


@pytest.fixture(scope="module")
def plan():
    return small_plan(num_microbatches=4)


@pytest.fixture
def file(plan, tmp_path):
    plan.save(tmp_path / "a.plan.json")
    return str(tmp_path / "a.plan.json")


def test_a_dry_run_says_what_would_run_and_starts_nothing(plan, file, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text(write_csv(plan.timeline("zb-h1").schedule))
    found = []
    for schedule in ("1f1b", "gpipe", "mine.csv"):
        asked = ["--dry-run", "--steps", "7", "--schedule", schedule, "--device", "cpu"]
        assert main(["launch", file, *asked]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert [f["options"]["steps"] for f in found] == [7, 7, 7]
    assert found[0]["stages"] == [[0], [1]]
    assert found[0]["instructions"] == found[1]["instructions"] > 0
    assert [f["schedule"] for f in found] == ["1f1b", "gpipe", "csv"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.plan.json", "mine.csv"]


@pytest.mark.parametrize("command", ["launch", "verify"])
def test_too_few_devices_are_one_line_and_exit_code_2(command, file, capsys, monkeypatch) -> None:
    monkeypatch.setattr(tuning, "PROCESSES_A_CORE", 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert main([command, file, "--device", "cpu"]) == 2
    assert "1 are missing" in capsys.readouterr().err
