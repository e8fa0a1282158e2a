"""`alpa-explore simulate`: what it prints, what it writes, and what it refuses."""

import json
import re

import pytest

from alpa_explore import cli
from alpa_explore.schedules.catalog import SCHEDULES, V_SHAPES
from alpa_explore.schedules.csv_file import read_csv
from tests.plans.example import example_plan


def test_it_prints_a_sentence_the_submeshes_and_the_critical_path(plan_file, capsys) -> None:
    assert cli.main(["simulate", plan_file]) == 0
    out = capsys.readouterr().out
    assert out.startswith("One iteration: ")
    assert " of sends between stages (" in out
    assert "Under 1f1b with B = 16 " in out
    assert "submesh  stages" in out
    assert "The critical path:" in out


@pytest.mark.sweep(kept=3, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
def test_json_has_every_figure_and_the_files_are_those_of_the_schedule(name, plan_file, capsys, tmp_path) -> None:
    trace, table = tmp_path / "trace.json", tmp_path / "schedule.csv"
    arguments = ["simulate", plan_file, "--schedule", name, "--json", "--trace", str(trace), "--csv", str(table)]
    assert cli.main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schedule"] == name
    assert found["makespan_seconds"] > 0
    assert len(found["table"]) == 4
    assert found["closed_form"]["seconds"] > 0
    assert {e["ph"] for e in json.loads(trace.read_text())["traceEvents"]} == set("MXCstf")
    assert read_csv(table).num_microbatches == 16
    assert cli.main(["simulate", plan_file, "--schedule", str(table), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["makespan_seconds"], again["closed_form"]) == (found["makespan_seconds"], None)


def test_all_schedules_are_compared_and_the_one_that_does_not_exist_is_named(plan_file, capsys, tmp_path) -> None:
    assert cli.main(["simulate", plan_file, "--schedule", "all"]) == 0
    captured = capsys.readouterr()
    left_out = re.findall(r"(\S+) is left out: ", captured.err)
    shown = [line.split()[0] for line in captured.out.splitlines()]
    assert shown == ["schedule", *(name for name in SCHEDULES if name not in left_out)]
    assert set(left_out) <= set(V_SHAPES), "four stages on four submeshes of eight layers are no V of eight stages"
    example_plan(num_layers=6, num_microbatches=16).save(tmp_path / "six")
    assert cli.main(["simulate", str(tmp_path / "six"), "--schedule", "all", "--json"]) == 0
    captured = capsys.readouterr()
    shown = [row["schedule"] for row in json.loads(captured.out)]
    left_out = re.findall(r"(\S+) is left out: ", captured.err)
    assert shown == [name for name in SCHEDULES if name not in left_out]
    assert "interleaved-1f1b" not in shown
