"""The timeline figure, by its data."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from alpa_explore.figures import tuning
from alpa_explore.figures.timelines.sampling import busy_share, largest_between
from alpa_explore.figures.timelines.timeline import timeline_figure, timeline_table
from alpa_explore.plans.plan import Plan
from alpa_explore.schedules.task import Action
from tests.figures.test_figures import title_of, traces


def test_every_task_and_every_idle_gap_is_a_bar_at_its_time(plan: Plan) -> None:
    plan = replace(plan, details=None, stages=tuple(replace(s, operators=()) for s in plan.stages))
    timeline = plan.timeline("zb-h1")
    figure = timeline_figure(plan, ("zb-h1",))
    names = {
        "forward": Action.FORWARD,
        "backward, inputs": Action.BACKWARD_INPUT,
        "backward, weights": Action.BACKWARD_WEIGHT,
        "update": Action.UPDATE,
    }
    drawn = 0.0
    for name, action in names.items():
        (bars,) = traces(figure, name)
        seconds = timeline.end_seconds - timeline.start_seconds
        expected = (timeline.schedule.actions == action) & (seconds > 0)
        assert len(bars.x) == expected.sum()
        np.testing.assert_allclose(bars.base, timeline.start_seconds[expected], rtol=1e-5)
        np.testing.assert_allclose(bars.x, seconds[expected], rtol=1e-5)
        drawn += sum(bars.x)
    (idle,) = traces(figure, "idle")
    assert drawn + sum(idle.x) == pytest.approx(4 * timeline.makespan_seconds, rel=1e-4)


def test_the_critical_path_leads_from_the_start_to_the_end(plan: Plan) -> None:
    (path,) = traces(timeline_figure(plan), "critical path")
    moments = [x for x in path.x if x is not None]
    assert moments[0] == 0
    assert moments[-1] == pytest.approx(plan.timeline().makespan_seconds, rel=1e-5)


def test_the_memory_of_the_fullest_submesh_is_drawn_in_parts_that_reach_its_peak(plan: Plan) -> None:
    figure, rows = timeline_figure(plan), timeline_table(plan)
    fullest = max(rows, key=lambda row: row["peak_bytes"])
    parts = [trace for trace in figure.data if trace.name and trace.name.endswith(f"of submesh {fullest['submesh']}")]
    stacked = [t for t in parts if t.stackgroup]
    assert [t.name.split(" ")[0] for t in stacked] == ["weights", "gradients", "optimizer", "activations", "workspace"]
    assert np.sum([t.y for t in stacked], axis=0).max() == pytest.approx(fullest["peak_bytes"] / 2**30, rel=1e-4)
    (capacity,) = traces(figure, "memory of a device")
    assert capacity.y[0] == plan.cluster.device.memory_bytes / 2**30


def test_schedules_side_by_side_share_the_axis_of_time_and_are_compared(plan: Plan) -> None:
    figure = timeline_figure(plan, ("1f1b", "gpipe"))
    titles = [a.title.text for a in figure.select_yaxes()]
    assert titles == ["submesh<br>1f1b", "memory (GiB)", "submesh<br>gpipe", "memory (GiB)"]
    assert len({tuple(a.range) for a in figure.select_xaxes()}) == 1
    assert "1f1b" in title_of(figure)
    assert "gpipe" in title_of(figure)
    assert [row["schedule"] for row in timeline_table(plan, ("1f1b", "gpipe"))] == ["1f1b"] * 4 + ["gpipe"] * 4


def test_a_long_iteration_is_drawn_as_busy_shares_and_a_window_of_it_task_by_task(deep_plan: Plan) -> None:
    whole = timeline_figure(deep_plan, ("1f1b", "zb-h1"))
    assert len(traces(whole, "busy")) == 2
    assert traces(whole, "forward") == []
    assert len(whole.to_json()) < 400_000
    for window in ("start", "middle", "end", (0.5, 0.51)):
        part = timeline_figure(deep_plan, window=window)
        bars = sum(len(t.x) for t in part.data if t.type == "bar" and t.name in ("forward", "backward", "update"))
        assert 0 < bars <= tuning.TIMELINE_TASKS
        assert len(json.dumps(json.loads(part.to_json()))) < 400_000


def test_the_busy_shares_add_up_to_the_busy_seconds(deep_plan: Plan) -> None:
    timeline = deep_plan.timeline()
    edges = np.linspace(0, timeline.makespan_seconds, 101)
    for p in range(timeline.schedule.num_submeshes):
        share = busy_share(timeline, p, edges)
        assert 0 <= share.min() <= share.max() <= 1 + 1e-12
        assert (share * np.diff(edges)).sum() == pytest.approx(timeline.busy_seconds[p])


def test_a_curve_of_many_steps_keeps_its_peaks() -> None:
    moments, values = np.arange(1000.0), np.zeros(1000)
    values[417] = 5.0
    x, y = largest_between(moments, values, np.linspace(0, 999, 11))
    assert len(x) == len(y) == 11
    assert y.max() == 5.0
    assert y[4] == 5.0
    x, y = largest_between(np.array([0.0, 2.0, 2.0, 4.0]), np.array([1.0, 9.0, 2.0, 3.0]), np.linspace(1, 5, 9))
    assert (x.tolist(), y.tolist()) == ([1, 2, 4, 5], [1, 2, 3, 3])
