"""The planner chooses the schedule where none is named: by T, among those that the software runs."""

import json
import threading
from dataclasses import replace
from typing import Any

import pytest

import alpa_explore as ax
from alpa_explore.cli import main
from alpa_explore.errors import CancelledError
from alpa_explore.inter_op.options import compared
from alpa_explore.plans.assemble import fastest_schedule
from alpa_explore.plans.report.summary import plan_report
from alpa_explore.search.pipeline_query import PipelineQuery

CLUSTER = "4x1:h100@torchtitan"


def tiny(**options: Any) -> ax.Plan:
    return ax.plan(
        "llama-tiny",
        CLUSTER,
        num_microbatches=8,
        global_batch=64,
        num_layers=8,
        scheduler="serial",
        pipeline=ax.PipelineOptions(num_stages=4, **options),
    )


@pytest.fixture(scope="module")
def plan() -> ax.Plan:
    return tiny()


def found(plan: ax.Plan) -> list[Any]:
    query = PipelineQuery(cluster=plan.cluster, options=ax.PipelineOptions(num_stages=4), num_microbatches=8)
    return query.best_of_each(plan.costs)


@pytest.mark.slow
def test_it_is_the_fastest_of_the_plans_for_each_schedule(plan: ax.Plan) -> None:
    each = {
        (asked.schedule, asked.terms(1).turns): tiny(
            schedule=asked.schedule, stages_per_submesh=asked.stages_per_submesh
        )
        for asked in compared(ax.PipelineOptions(num_stages=4), plan.cluster, 8, 8)
    }
    assert [(tried.schedule, tried.stages_per_submesh) for tried in plan.schedules] == list(each)
    assert len(each) == 4
    for tried, alone in zip(plan.schedules, each.values(), strict=True):
        assert tried.iteration_seconds == pytest.approx(alone.predicted.iteration_seconds, rel=0.02)
    chosen = each[plan.options.pipeline.schedule, plan.terms.turns]
    assert plan.predicted == chosen.predicted
    assert plan.predicted.iteration_seconds == min(other.predicted.iteration_seconds for other in each.values())
    assert plan.options.pipeline.schedule != "1f1b"


@pytest.mark.slow
def test_report_and_file_say_which_schedules_were_compared(plan: ax.Plan, tmp_path: Any) -> None:
    assert f"{plan.options.pipeline.schedule}" in plan_report(plan)
    line = next(line for line in plan_report(plan).splitlines() if line.startswith("Schedules compared"))
    assert [name in line for name in ("1f1b", "interleaved-1f1b × 2", "zb-v", "dualpipe-v")] == [True] * 4
    assert line.count("(chosen)") == 1
    plan.save(tmp_path / "p.json")
    loaded = ax.load_plan(tmp_path / "p.json")
    assert loaded.schedules == plan.schedules
    assert plan_report(loaded).splitlines()[4:6] == plan_report(plan).splitlines()[4:6]


@pytest.mark.slow
def test_another_b_keeps_the_schedule_and_another_question_compares_again(plan: ax.Plan) -> None:
    moved = ax.replan(plan, num_microbatches=16)
    assert (moved.options.pipeline, moved.schedules) == (plan.options.pipeline, ())
    named = ax.replan(plan, pipeline=ax.PipelineOptions(num_stages=4, schedule="1f1b"))
    assert named.options.pipeline.schedule == "1f1b"
    again = ax.replan(named, pipeline=ax.PipelineOptions(num_stages=4))
    assert (again.schedules, again.predicted) == (plan.schedules, plan.predicted)


@pytest.mark.slow
def test_what_is_known_when_the_comparison_is_cancelled_is_a_plan(plan: ax.Plan) -> None:
    cancel = threading.Event()
    cancel.set()
    first = ax.replan(plan, pipeline=ax.PipelineOptions(num_stages=4, schedule="1f1b"))
    with pytest.raises(CancelledError) as caught:
        fastest_schedule(first, found(plan), cancel)
    known = caught.value.known
    assert isinstance(known, ax.Plan)
    assert (known.stages, known.predicted) == (first.stages, first.predicted)


@pytest.mark.slow
def test_alike_stages_are_described_once_for_all_schedules(monkeypatch: pytest.MonkeyPatch, plan: ax.Plan) -> None:
    """Describing is what a comparison would spend most of its time on."""
    fresh = tiny(schedule="1f1b")
    assert fresh.details is not None
    described: list[object] = []
    made = type(fresh.details).problem
    monkeypatch.setattr(type(fresh.details), "problem", lambda self, *key: described.append(key) or made(self, *key))
    chosen = fastest_schedule(fresh, found(fresh))
    ran = {fresh.alike(stage) for stage in (*fresh.stages, *chosen.interleaved)}
    assert chosen.predicted == plan.predicted
    assert len(described) <= 2 * len(ran)  # the problem is asked for once for a choice, and once for its operators


@pytest.mark.slow
def test_the_command_line_compares_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "llama-tiny", "--cluster", CLUSTER, "-B", "8", "--global-batch", "64", "--layers", "8"]
    assert main([*arguments, "--stages", "4", "--json", "--scheduler", "serial"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert [row["schedule"] for row in summary["schedules"]] == ["1f1b", "interleaved-1f1b", "zb-v", "dualpipe-v"]
    (chosen,) = [row for row in summary["schedules"] if row["chosen"]]
    assert chosen["schedule"] == summary["options"]["pipeline"]["schedule"]
    assert chosen["iteration_seconds"] == summary["predicted"]["iteration_seconds"]


@pytest.mark.slow
def test_the_number_of_turns_alone_stands_for_the_interleaved_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "llama-tiny", "--cluster", CLUSTER, "-B", "8", "--global-batch", "64", "--layers", "8"]
    assert main([*arguments, "--stages", "2", "--stages-per-submesh", "4", "--json", "--scheduler", "serial"]) == 0
    pipeline = json.loads(capsys.readouterr().out)["options"]["pipeline"]
    assert (pipeline["schedule"], pipeline["stages_per_submesh"]) == ("interleaved-1f1b", 4)


@pytest.mark.slow
def test_a_schedule_whose_stages_do_not_fit_together_is_not_chosen(plan: ax.Plan) -> None:
    first = ax.replan(plan, pipeline=ax.PipelineOptions(num_stages=4, schedule="1f1b"))
    least = min(stage.weight_bytes for stage in first.stages)
    short = replace(first, cluster=plan.cluster.with_changes(memory_bytes=int(least)))
    chosen = fastest_schedule(short, found(plan))
    assert (chosen.options.pipeline.schedule, chosen.stages) == ("1f1b", first.stages)
    assert [tried.iteration_seconds is None for tried in chosen.schedules] == [False, True, True, True]
    assert "does not fit" in plan_report(chosen)
