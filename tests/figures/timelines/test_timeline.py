"""The timeline figure, by its data."""

import json
from dataclasses import replace

import numpy as np
import pytest

from alpa_explore.figures import tuning
from alpa_explore.figures.style import stage_color
from alpa_explore.figures.timelines.chart import busy_share, largest_between
from alpa_explore.figures.timelines.parts import Part, shown_parts
from alpa_explore.figures.timelines.timeline import timeline_figure, timeline_table
from alpa_explore.plans.plan import Plan
from alpa_explore.schedules.task import Action
from tests.figures.test_figures import title_of, traces
from tests.plans.example import example_plan

ACTIONS = {
    "forward": Action.FORWARD,
    "backward": Action.BACKWARD,
    "backward, inputs": Action.BACKWARD_INPUT,
    "backward, weights": Action.BACKWARD_WEIGHT,
    "update": Action.UPDATE,
}


def seconds_of(parts: list[Part], place: float) -> float:
    """The moment at a place of an axis with gaps."""
    part = next(p for p in reversed(parts) if place >= p.at - 1e-4)
    return place - part.shift


def test_every_task_and_every_wide_idle_gap_is_a_bar_at_its_time(plan: Plan) -> None:
    plan = replace(plan, details=None, stages=tuple(replace(s, operators=()) for s in plan.stages))
    timeline = plan.timeline("zb-h1")
    figure = timeline_figure(plan, ("zb-h1",), window="whole")
    seconds = timeline.end_seconds - timeline.start_seconds
    drawn = 0.0
    for name in ("forward", "backward, inputs", "backward, weights", "update"):
        (bars,) = traces(figure, name)
        expected = (timeline.schedule.actions == ACTIONS[name]) & (seconds > 0)
        assert len(bars.x) == expected.sum()
        np.testing.assert_allclose(bars.base, timeline.start_seconds[expected], rtol=1e-5)
        np.testing.assert_allclose(bars.x, seconds[expected], rtol=1e-4)
        drawn += sum(bars.x)
    (idle,) = traces(figure, "idle")
    per_pixel = timeline.makespan_seconds / tuning.TIMELINE_PIXELS
    assert min(idle.x) >= 8 * per_pixel * (1 - 1e-6), "a narrow gap is the ground of its row"
    assert 0.95 < (drawn + sum(idle.x)) / (4 * timeline.makespan_seconds) <= 1 + 1e-4
    (ground,) = traces(figure, "short waits")
    assert (len(ground.x), set(ground.base)) == (4, {0.0})


def test_a_forward_pass_is_low_and_pale_and_a_backward_pass_high_in_the_colour_of_its_stage(plan: Plan) -> None:
    figure = timeline_figure(plan)
    (forward,), (backward,) = traces(figure, "forward"), traces(figure, "backward")
    assert forward.width < 0.7 * backward.width
    assert list(backward.marker.color) == [stage_color(p) for p in backward.y]
    assert set(forward.marker.color).isdisjoint(backward.marker.color)
    assert traces(figure, "idle")[0].marker.pattern.shape


def test_rows_are_named_after_their_stage_and_where_they_interleave_after_their_submesh() -> None:
    plan = example_plan(num_layers=8, num_microbatches=16)
    figure = timeline_figure(plan)
    assert list(figure.layout.yaxis.ticktext) == [
        f"stage {s.index} · {s.submesh[0]}×{s.submesh[1]}" for s in plan.stages
    ]
    figure = timeline_figure(plan, ("interleaved-1f1b",))
    assert figure.layout.yaxis.ticktext[3].startswith("submesh 3 · ")


@pytest.mark.parametrize("schedule", ["zb-v", "dualpipe"])
def test_the_second_stage_of_a_submesh_is_darker_and_its_microbatches_have_a_prime(schedule) -> None:
    plan = example_plan(num_layers=8, num_microbatches=16)
    timeline = plan.timeline(schedule)
    figure = timeline_figure(plan, window="whole", timelines=[timeline])
    (backward,) = traces(figure, "backward, inputs")
    order = timeline.schedule.submesh_of_stage
    stages = timeline.schedule.stages[timeline.schedule.actions == Action.BACKWARD_INPUT]
    first = np.array([order[s] not in order[:s] for s in stages])
    own = np.array([stage_color(p) for p in backward.y])
    assert ((np.array(backward.marker.color) == own) == first).all()
    (numbers,) = traces(timeline_figure(plan, window=(0.2, 0.4), timelines=[timeline]), "microbatch")
    primed = [text.endswith("′") for text in numbers.text]
    assert any(primed)
    assert not all(primed)


@pytest.mark.parametrize("b", [128, 1024])
def test_by_default_a_long_iteration_is_shown_filling_steady_and_emptying(b: int) -> None:
    plan = example_plan(num_microbatches=b)
    timeline, figure = plan.timeline(), timeline_figure(plan)
    ((*parts,),) = shown_parts([timeline], "parts")
    assert [a.text for a in figure.layout.annotations][:3] == ["warm-up", "steady", "drain"]
    bars = [t for t in figure.data if t.type == "bar"]
    assert sum(len(t.x) for t in bars) < 250
    for trace in bars:
        if trace.name in ("forward", "backward"):
            known = timeline.start_seconds[timeline.schedule.actions == ACTIONS[trace.name]]
            ends = timeline.end_seconds[timeline.schedule.actions == ACTIONS[trace.name]]
            for base, length in zip(trace.base, trace.x, strict=True):
                start, end = seconds_of(parts, base), seconds_of(parts, base + length)
                cut = min(np.abs(known - start).min(), np.abs(ends - end).min())
                assert cut < 2e-3, "a bar begins or ends where its task does"
    (forward,) = traces(figure, "forward")
    assert {d[0] for d in forward.customdata} >= {0, 1, 2, 3, b - 1}, "the first microbatches and the last"
    assert len({d[0] for d in forward.customdata} & set(range(b // 4, 3 * b // 4))) >= 2, "and some between them"
    waits = [d[1] for t in traces(figure, "idle") for d in t.customdata]
    assert any("waiting for backward of microbatch 0 from stage 1" in text for text in waits)


def test_the_parts_have_one_scale_and_the_overview_frames_them() -> None:
    plan = example_plan(num_microbatches=128)
    figure, total = timeline_figure(plan), plan.timeline().makespan_seconds
    (strip,), (frames,) = traces(figure, "overview"), traces(figure, "shown above")
    assert len(strip.y) == len(plan.stages)
    assert strip.base[0] == 0
    assert max(base + length for base, length in zip(strip.base, strip.x, strict=True)) == pytest.approx(
        total, rel=1e-4
    )
    edges = [frames.x[6 * k + side] for k in range(3) for side in (0, 1)]
    assert edges == sorted(edges)
    assert (edges[0], edges[-1]) == (0, pytest.approx(total, rel=1e-5))
    shown = sum(edges[1::2]) - sum(edges[::2])
    first, last = figure.layout.xaxis.range
    assert last - first == pytest.approx(shown * (1 + 2 * tuning.TIMELINE_GAP_SHARE), rel=1e-4)


def test_what_is_left_out_is_written_beside_the_tasks_and_not_across_the_memory() -> None:
    layout = timeline_figure(example_plan(num_microbatches=128)).layout
    gaps = [note for note in layout.annotations if note.text.startswith("…")]
    assert len(gaps) == 2
    low, high = layout.yaxis.domain
    plot = layout.height - layout.margin.t - layout.margin.b
    for note in gaps:
        half = 3.5 * len(note.text) / plot  # of letters of 12 pixels, turned
        assert low < note.y - half < note.y + half < high, note.text


def test_a_short_iteration_is_shown_whole_and_without_an_overview() -> None:
    figure = timeline_figure(example_plan(num_microbatches=8))
    assert traces(figure, "overview") == []
    assert list(figure.layout.annotations) == []
    assert traces(timeline_figure(example_plan(num_microbatches=8), brush=True), "overview") != []


def test_with_all_forward_passes_first_the_middle_part_is_the_turn() -> None:
    figure = timeline_figure(example_plan(num_microbatches=128), ("gpipe",))
    assert [a.text for a in figure.layout.annotations][:3] == ["warm-up", "turn", "drain"]
    (backward,) = traces(figure, "backward")
    assert 0 in {d[0] for d in backward.customdata}


def test_the_critical_path_leads_from_the_start_to_the_end(plan: Plan) -> None:
    for window in ("whole", "parts"):
        figure = timeline_figure(plan, window=window)
        (path,) = traces(figure, "critical path")
        moments = [x for x in path.x if x is not None]
        assert moments[0] == 0
        assert moments[-1] == pytest.approx(figure.layout.xaxis.range[1], rel=1e-5)


def test_sends_are_drawn_where_they_are_no_web_across_the_critical_path() -> None:
    few, many = (timeline_figure(example_plan(num_microbatches=b), window="whole") for b in (4, 64))
    assert len(traces(few, "send")) == 1
    assert traces(many, "forward")
    assert traces(many, "send") == []
    assert len(traces(many, "critical path")) == 1


@pytest.mark.parametrize("window", ["parts", "whole"])
def test_the_memory_of_the_fullest_stage_is_drawn_in_parts_that_reach_its_peak(plan: Plan, window: str) -> None:
    figure, rows = timeline_figure(plan, window=window), timeline_table(plan)
    fullest = max(rows, key=lambda row: row["peak_bytes"])
    stacked = [t for t in figure.data if t.type == "scatter" and t.stackgroup]
    assert [t.name.split(" of stage ")[0] for t in stacked] == [
        "weights, gradients, optimizer state",
        "activations held",
        "workspace",
    ]
    assert all(f" of stage {fullest['submesh']} " in t.name for t in stacked)
    assert len({tuple(t.x) for t in stacked}) == 1, "plotly stacks only what is at the same places"
    assert np.sum([t.y for t in stacked], axis=0).max() == pytest.approx(fullest["peak_bytes"] / 2**30, rel=1e-4)
    (capacity,) = traces(figure, "memory of a device")
    assert capacity.y[0] == plan.cluster.device.memory_bytes / 2**30


def test_schedules_side_by_side_have_one_scale_and_are_compared(plan: Plan) -> None:
    figure = timeline_figure(plan, ("1f1b", "gpipe"))
    assert [a.text for a in figure.layout.annotations if a.text.startswith("<b>")] == ["<b>1f1b</b>", "<b>gpipe</b>"]
    ranges = [figure.layout[name].range for name in ("xaxis", "xaxis2")]
    assert ranges[0] == pytest.approx(ranges[1])
    assert "1f1b" in title_of(figure)
    assert "gpipe" in title_of(figure)
    assert [row["schedule"] for row in timeline_table(plan, ("1f1b", "gpipe"))] == ["1f1b"] * 4 + ["gpipe"] * 4


def test_the_legend_has_a_margin_of_its_own(plan: Plan) -> None:
    for schedule in ("1f1b", "zb-h1"):
        figure = timeline_figure(plan, (schedule,))
        legend, margin = figure.layout.legend, figure.layout.margin
        plot = figure.layout.height - margin.t - margin.b
        reserved = (legend.y - 1) * plot
        entries = [t for t in figure.data if t.showlegend]
        columns = 331 // (legend.entrywidth + 44)
        assert legend.yanchor == "top", "rows grow downwards"
        assert reserved >= 19 * -(-len(entries) // columns), "the rows of a window of 900 pixels"
        assert reserved < margin.t


def test_a_long_iteration_is_drawn_as_busy_shares_and_a_window_of_it_task_by_task(deep_plan: Plan) -> None:
    whole = timeline_figure(deep_plan, ("1f1b", "zb-h1"), window="whole")
    assert len(traces(whole, "busy")) == 2
    assert traces(whole, "forward") == []
    assert len(whole.to_json()) < 400_000
    for window in ("parts", "start", "middle", "end", (0.5, 0.51)):
        part = timeline_figure(deep_plan, window=window)
        bars = sum(len(t.x) for t in part.data if t.type == "bar" and t.name in ("forward", "backward", "update"))
        assert 0 < bars <= 1.02 * tuning.TIMELINE_TASKS
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
