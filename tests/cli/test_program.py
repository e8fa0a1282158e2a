"""`alpa-explore program`: a plan as instructions for every rank."""

import json

import pytest

import alpa_explore as ax
from alpa_explore import cli
from alpa_explore.models.catalog import build
from alpa_explore.programs.text import instruction_line


@pytest.fixture(scope="module")
def plan():
    # As small as can be, and on several devices: the cut and the sharding are the test's.
    return ax.plan("mlp-tiny", "1x4:cpu", num_microbatches=2, num_layers=2, pipeline=ax.PipelineOptions(num_stages=2))


@pytest.fixture(scope="module")
def plan_file(plan, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("plans") / "a.plan.json"
    plan.save(path)
    return str(path)


def test_it_counts_the_instructions_of_every_rank_and_says_that_they_were_checked(plan_file, capsys) -> None:
    assert cli.main(["program", plan_file]) == 0
    out = capsys.readouterr().out
    assert out.startswith("stage  rank  instructions")
    assert "4 ranks under 1f1b, checked" in out
    assert cli.main(["program", plan_file, "--schedule", "gpipe", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["rank"] for row in found["stages"]] == [0, 1, 2, 3]
    assert sum(row["instructions"] for row in found["stages"]) == found["instructions"]
    assert all(row["peak_bytes"] > row["lasting_bytes"] > 0 for row in found["stages"])


def test_a_rank_is_printed_line_by_line(plan, plan_file, capsys) -> None:
    assert cli.main(["program", plan_file, "--rank", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    program = ax.lower(plan)
    stage = next(s for s in program.stages if 3 in s.ranks)
    assert len(lines) == len(stage.lasting[3]) + sum(len(own[3]) for own in stage.tasks.values())
    assert any("aten.addmm.default" in line or "aten.mm.default" in line for line in lines)
    kinds = {type(i) for own in stage.tasks.values() for i in own[3]}
    assert len(kinds) >= 7
    assert all(instruction_line(i, program.graph) for own in stage.tasks.values() for i in own[3])


def test_a_program_follows_the_schedule_that_the_plan_was_made_for(plan, tmp_path, capsys) -> None:
    path = str(tmp_path / "gpipe.plan.json")
    ax.replan(plan, pipeline=ax.PipelineOptions(schedule="gpipe")).save(path)
    assert cli.main(["program", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schedule"] == "gpipe"


def test_a_program_is_interpreted_with_a_model_and_its_microbatches(plan) -> None:
    model, inputs = build("mlp-tiny", plan.model.samples, device="cpu")
    made = ax.interpret(ax.lower(plan), model, [inputs, inputs])
    loss = model(*inputs)
    loss.backward()
    assert made.losses == pytest.approx([loss.item()] * 2, rel=1e-5)
    assert len(made.gradients) == sum(p.requires_grad for p in model.parameters())
