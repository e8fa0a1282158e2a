"""The microbatches figure shows the rows of its table."""

from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore.figures.comparisons.microbatches import microbatches_figure, microbatches_sentence, microbatches_table
from alpa_explore.planner.replan import replan
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import TriedMicrobatches
from tests.figures.test_figures import trace_of


def test_times_rates_and_memory_are_those_of_the_table(plan: Plan) -> None:
    figure, rows = microbatches_figure(plan), microbatches_table(plan)
    names = [f"{row['num_microbatches']:,}" for row in rows]
    for name, key in (("T", "iteration_seconds"), ("samples a second", "samples_per_second")):
        line = trace_of(figure, name)
        assert list(line.x) == names
        scale = rows[0][key] / line.y[0]
        assert [y * scale for y in line.y] == pytest.approx([row[key] for row in rows])
    bars = [trace_of(figure, n) for n in ("weights, gradients, optimizer state", "activations held", "workspace")]
    heights = [sum(parts) for parts in zip(*(bar.y for bar in bars), strict=True)]
    limit = trace_of(figure, "memory of a device").y[0] / plan.cluster.device.memory_bytes
    assert heights == pytest.approx([row["peak_bytes"] * limit for row in rows])


def test_a_star_marks_the_number_of_the_plan(plan: Plan) -> None:
    line = trace_of(microbatches_figure(plan), "T")
    (starred,) = [x for x, symbol in zip(line.x, line.marker.symbol, strict=True) if symbol == "star"]
    assert starred == f"{plan.options.num_microbatches:,}"


def test_a_number_at_which_nothing_fits_is_crossed_out_at_the_memory_that_it_needs(plan: Plan) -> None:
    chosen = next(
        TriedMicrobatches(
            num_microbatches=row["num_microbatches"],
            samples=plan.model.samples,
            iteration_seconds=row["iteration_seconds"],
            stages=row["stages"],
            fullest_stage=row["fullest_stage"],
            weight_bytes=row["weight_bytes"],
            held_bytes=row["held_bytes"],
            workspace_bytes=row["workspace_bytes"],
        )
        for row in microbatches_table(plan)
        if row["chosen"]
    )
    small = TriedMicrobatches(num_microbatches=1, samples=4096, iteration_seconds=None, over_bytes=2.0**30)
    figure = microbatches_figure(replace(plan, microbatches=(small, chosen)))
    crossed = trace_of(figure, "nothing fits; the closest needs")
    scale = trace_of(figure, "memory of a device").y[0] / plan.cluster.device.memory_bytes
    assert list(crossed.x) == ["1"]
    assert crossed.y[0] == pytest.approx((plan.cluster.device.memory_bytes + 2**30) * scale)
    assert "1 GiB over" in crossed.hovertext[0]
    assert trace_of(figure, "T").y[0] is None
    assert "1 B does not fit in memory" in figure.layout.title.text.replace("<br>", " ")


def test_a_number_that_was_not_planned_stands_at_its_lower_bound(plan: Plan) -> None:
    (chosen,) = (row for row in microbatches_table(plan) if row["chosen"])
    own = TriedMicrobatches(
        num_microbatches=chosen["num_microbatches"],
        samples=plan.model.samples,
        iteration_seconds=chosen["iteration_seconds"],
    )
    slower = TriedMicrobatches(
        num_microbatches=1, samples=4096, iteration_seconds=None, least_seconds=1.5 * chosen["iteration_seconds"]
    )
    both = replace(plan, microbatches=(slower, own))
    figure = microbatches_figure(both)
    bounds, times = trace_of(figure, "T is at least"), trace_of(figure, "T")
    assert bounds.y[0] == pytest.approx(1.5 * times.y[1])
    assert (bounds.y[1], times.y[0]) == (None, None)
    assert "not planned: T is at least" in bounds.hovertext[0]
    assert figure.layout.yaxis.range[1] > bounds.y[0]
    assert "1 B is slower by a lower bound on T, and not planned" in microbatches_sentence(both)
    assert [row["least_seconds"] for row in microbatches_table(both)] == [slower.least_seconds, None]
    assert "least_seconds" not in microbatches_table(plan)[0], "a column for nothing"


def test_values_stand_at_the_marks_and_the_memory_of_a_device_at_its_line(plan: Plan) -> None:
    figure = microbatches_figure(plan)
    for name in ("T", "samples a second"):
        line = trace_of(figure, name)
        assert list(line.text) == [f"{y:,.3g}" for y in line.y]
    assert [note.text for note in figure.layout.annotations] == ["16 GiB, one device"]
    assert figure.layout.yaxis.type == "log", "with microbatches of one size T doubles with B"
    assert all(
        trace.showlegend is False for trace in figure.data if trace.type == "scatter" and trace.mode != "markers"
    )


def test_the_memory_of_a_device_is_written_where_no_bar_and_no_cross_stands(plan: Plan) -> None:
    room = plan.cluster.device.memory_bytes

    def place(*needed: float) -> tuple[str, bool]:
        """Where the words stand, and whether above all marks, if the fullest devices of B = 1, 2, … need these."""
        fits = {"iteration_seconds": 1.0, "held_bytes": 0.0, "workspace_bytes": 0.0}
        rows = [
            TriedMicrobatches(num_microbatches=b, samples=8, **fits, weight_bytes=need * room)
            if need <= 1.0
            else TriedMicrobatches(
                num_microbatches=b, samples=8, iteration_seconds=None, over_bytes=(need - 1.0) * room
            )
            for b, need in enumerate(needed, 1)
        ]
        own = replace(plan, microbatches=tuple(rows), options=replace(plan.options, num_microbatches=4))
        (note,) = microbatches_figure(own).layout.annotations
        scale = trace_of(microbatches_figure(own), "memory of a device").y[0] / room
        return note.xanchor, note.y > max(needed) * room * scale - 1e-9 and note.yshift > 0

    assert place(0.5, 0.5, 0.5, 0.5, 0.5, 0.5) == ("left", False)
    assert place(1.05, 0.9, 0.7, 0.5, 0.5, 0.5) == ("right", False), "a cross at B = 1"
    assert place(0.95, 0.9, 0.7, 0.5, 0.9, 0.5) == ("left", True), "bars at both ends"
    assert place(1.05, 0.9, 0.7, 0.5, 1.2, 0.5) == ("left", True), "crosses at both ends"


def test_the_sentence_compares_with_the_most_and_where_the_plan_has_the_most_with_half_of_it(plan: Plan) -> None:
    assert " % of the most, which B = 1,024 reaches with T " in microbatches_sentence(plan)
    most = replan(plan, num_microbatches=1024)
    said = microbatches_sentence(most)
    assert ", the most of the 11 B here; B = 512 would reach 99." in said
    assert " % of it with T " in said
    one = replace(most, model=replace(most.model, samples=1))
    assert "microbatches of 1 sample:" in microbatches_sentence(one)


def test_on_unlike_nodes_the_line_is_the_memory_of_the_device_that_is_fullest_at_each_number(plan: Plan) -> None:
    row = TriedMicrobatches(
        num_microbatches=1,
        samples=8,
        iteration_seconds=1.0,
        stages=2,
        fullest_stage=0,
        memory_bytes=16 * 2.0**30,
        weight_bytes=9e9,
        held_bytes=1e9,
        workspace_bytes=1e9,
    )
    other = replace(row, num_microbatches=plan.options.num_microbatches, fullest_stage=1, memory_bytes=40 * 2.0**30)
    both = replace(plan, cluster=ax.Cluster.parse("2x8:v100+1x8:a100"), microbatches=(row, other))
    figure = microbatches_figure(both)
    limit = trace_of(figure, "memory of a device")
    assert (limit.y[1] / limit.y[0], limit.line.shape) == (2.5, "hvh")
    assert figure.layout.annotations[0].text == "16 GiB or 40 GiB, one device"
    assert ["of 16 GiB" in text for text in trace_of(figure, "workspace").hovertext] == [True, False]
