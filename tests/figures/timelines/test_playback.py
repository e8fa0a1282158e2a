"""What the page gets to play an iteration: the tasks of the timeline, and the axes of its figure."""

import json

import numpy as np
import pytest

from alpa_explore.figures.timelines.playback import playback_document
from alpa_explore.figures.timelines.timeline import timeline_figure
from alpa_explore.plans.plan import Plan
from tests.plans.example import example_plan


def test_the_tasks_are_those_of_the_timeline(plan: Plan) -> None:
    document = playback_document(plan)
    timeline = plan.timeline("1f1b")
    (chart,) = document["charts"]
    assert document["end"] * 1.0 == pytest.approx(timeline.makespan_seconds)
    for submesh, row in enumerate(chart["rows"]):
        tasks = timeline.submesh(submesh)
        kept = timeline.end_seconds[tasks] > timeline.start_seconds[tasks]
        start, end = (np.array(row[name]) * document["tick"] for name in ("start", "end"))
        least = 1e-6 * timeline.makespan_seconds
        np.testing.assert_allclose(start, timeline.start_seconds[tasks][kept], atol=least)
        np.testing.assert_allclose(end, timeline.end_seconds[tasks][kept], atol=least)
        assert len(row["kind"]) == len(row["microbatch"]) == len(row["start"])
        assert row["kinds"][row["kind"][0]] == "forward"
    json.dumps(document, allow_nan=False)


def test_the_parts_and_the_axes_are_those_of_the_figure() -> None:
    plan = example_plan(num_microbatches=512)
    schedules = ("1f1b", "gpipe")
    document = playback_document(plan, schedules)
    layout = timeline_figure(plan, schedules, brush=True).layout
    for chart in document["charts"]:
        parts = chart["parts"]
        assert len(parts) == 3
        assert layout[chart["x"]].range[0] == pytest.approx(parts[0]["at"])
        last = parts[-1]
        assert layout[chart["x"]].range[1] == pytest.approx(last["at"] + last["end"] - last["start"])
        assert layout[chart["memory"]].title.text == "(GiB)"
        assert layout[chart["tasks"]].ticktext[0].startswith("stage 0")
    assert layout.meta["brush"]["axis"] == document["overview"]["x"]
    assert layout[document["overview"]["y"]].ticktext[0].startswith("whole iteration<br>")


def test_where_a_submesh_runs_several_stages_a_task_names_its_stage() -> None:
    plan = example_plan(num_layers=8, num_microbatches=16)
    (chart,) = playback_document(plan, ("interleaved-1f1b",))["charts"]
    assert chart["rows"][0]["name"] == "submesh 0"
    assert chart["rows"][0]["kinds"][0] == "forward of stage 0"


def test_a_long_iteration_is_small_enough_to_be_sent_at_once(deep_plan: Plan) -> None:
    assert len(json.dumps(playback_document(deep_plan))) < 700_000
