"""`alpa-explore export` and `report`."""

import json
from pathlib import Path

import pytest

from alpa_explore.cli import main


def test_an_export_is_printed_or_written_and_its_limits_go_to_stderr(plan_file: str, tmp_path: Path, capsys) -> None:
    assert main(["export", plan_file, "--to", "megatron"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("#!/usr/bin/env bash\n")
    assert "alpa-explore: not expressed: Stages on unequal submeshes" in printed.err
    assert main(["export", plan_file, "--to", "megatron", "-o", str(tmp_path / "train.sh")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "train.sh").read_text() == printed.out


def test_json_has_the_text_and_the_limits(plan_file: str, capsys) -> None:
    assert main(["export", plan_file, "--to", "torchtitan", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["target"] == "torchtitan"
    assert "def with_plan" in found["text"]
    assert {"what", "instead"} == set(found["limits"][0])


@pytest.mark.slow
def test_a_report_of_two_plans_is_one_page(plan_file: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert main(["report", plan_file, plan_file, "-o", str(page), "--chosen", "1"]) == 0
    assert page.read_text().count("<tr class=chosen") == 1
