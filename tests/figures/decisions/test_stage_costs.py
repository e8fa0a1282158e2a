"""The figure of the stage costs: each pair is in its cell, with its colour, its number where there is room, or a ✕."""

from typing import Any

import plotly.graph_objects as go
import pytest

from alpa_explore.figures import tuning
from alpa_explore.figures.decisions.stage_cost_grid import Panel, PanelGrid
from alpa_explore.figures.decisions.stage_costs import stage_costs_figure, stage_costs_table
from alpa_explore.figures.keys import key, read_key
from alpa_explore.plans.plan import Plan
from tests.figures.test_figures import title_of, traces
from tests.plans.example import example_plan

LARGE = {"cluster": "8x8:v100", "num_layers": 12}


def panels_of(figure: go.Figure) -> list[str]:
    """The names of the panels, those in the plan first."""
    return [text.split("</b>")[0].removeprefix("<b>") for trace in traces(figure, "submeshes") for text in trace.text]


def cells_of(figure: go.Figure) -> dict[str, tuple[Any, int, int]]:
    """First line of the hover text -> trace and cell."""
    return {
        text.split("</b>")[0].removeprefix("<b>"): (trace, y, x)
        for trace in traces(figure, "latencies")
        for y, row in enumerate(trace.hovertext)
        for x, text in enumerate(row)
        if text
    }


def place_of(trace: Any, y: int, x: int) -> tuple[float, float]:
    """A cell of a heatmap in units of the axes: (down, across)."""
    down, across = (trace.y0 or 0) + y * (trace.dy or 1), (trace.x0 or 0) + x * (trace.dx or 1)
    return round(down, 6), round(across, 6)


def crosses_of(figure: go.Figure) -> set[tuple[float, float]]:
    return {(round(y, 6), round(x, 6)) for t in traces(figure, "does not fit") for y, x in zip(t.y, t.x, strict=True)}


def name_of(row: dict[str, Any]) -> str:
    (first, last), (n, m) = row["layers"], row["submesh"]
    return f"layer{'' if first == last else 's'} {first if first == last else f'{first}–{last}'} on {n}×{m}"


@pytest.mark.parametrize("arguments", [{}, {"cluster": "1x1:a100", "num_layers": 3}, LARGE])
def test_only_what_does_not_fit_is_crossed_out_and_blank_cells_have_nothing(arguments: dict[str, Any]) -> None:
    plan = example_plan(**arguments)
    figure = stage_costs_figure(plan)
    cells, crosses = cells_of(figure), crosses_of(figure)
    rows = {name_of(row): row for row in stage_costs_table(plan)}
    assert set(cells) <= set(rows)
    assert crosses == {place_of(t, y, x) for name, (t, y, x) in cells.items() if not rows[name]["microbatches_fit"]}
    for trace in traces(figure, "latencies"):
        assert trace.texttemplate in (None, "%{text}"), "a constant one is written into blank cells"
        for y, row in enumerate(trace.hovertext):
            for x, text in enumerate(row):
                assert bool(text) == (trace.z[y][x] == trace.z[y][x])
                assert trace.text is None or bool(trace.text[y][x]) == (
                    bool(text) and place_of(trace, y, x) not in crosses
                )


def test_a_number_is_in_the_unit_that_the_colour_bar_names_and_the_colour_is_its_logarithm(plan: Plan) -> None:
    figure = stage_costs_figure(plan)
    stage = plan.stages[2]
    trace, y, x = cells_of(figure)["layers 2–4 on 1×4"]
    assert 10 ** trace.z[y][x] == pytest.approx(stage.latency_seconds, rel=1e-3)
    assert "(ms)" in figure.layout.annotations[0].text
    assert float(trace.text[y][x]) == pytest.approx(1e3 * stage.latency_seconds, rel=0.006)
    grey = figure.layout.coloraxis.colorscale[1][0]
    low, high = figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax
    fitting = [
        z for (t, y, x) in cells_of(figure).values() if place_of(t, y, x) not in crosses_of(figure) for z in [t.z[y][x]]
    ]
    assert (min(fitting) - low) / (high - low) > grey, "nothing that fits has the grey"


def test_every_stage_of_the_plan_is_framed_at_its_cell_and_selected_by_it() -> None:
    for plan in (example_plan(), example_plan(**LARGE)):
        figure = stage_costs_figure(plan)
        cells = cells_of(figure)
        (frames,) = traces(figure, "frames")
        for stage in plan.stages:
            trace, y, x = cells[name_of({"layers": stage.layers, "submesh": stage.submesh})]
            assert trace.customdata[y][x] == key(stage=stage.index)
            assert trace.hovertext[y][x].endswith(f"click: selects stage {stage.index}")
            number = list(frames.customdata).index(key(stage=stage.index))
            assert (frames.x[number], frames.base[number] + 0.5) == (x, y)
            assert trace.text[y][x], "the cells of the plan have their numbers"
        assert figure.layout.barmode == "overlay"


def test_a_cell_that_is_not_in_the_plan_says_so_and_opens_a_plan_with_this_stage(plan: Plan) -> None:
    figure = stage_costs_figure(plan)
    trace, y, x = cells_of(figure)["layer 2 on 1×1"]
    assert read_key(trace.customdata[y][x]) == {"change": "stage=2-2@1x1"}
    assert trace.hovertext[y][x].endswith("not in the plan<br>click: opens the best plan with this stage")
    grids = [t for t in figure.data if t.name == "latencies"]
    texts = [
        (text, target)
        for t in grids
        for row, targets in zip(t.hovertext, t.customdata, strict=True)
        for text, target in zip(row, targets, strict=True)
    ]
    assert all(not target for text, target in texts if "does not fit" in text)
    assert all(bool(target) == ("click:" in text) for text, target in texts)
    told = [text for text, target in texts if text and not target and "does not fit" not in text]
    assert all("so it opens no plan" in text for text in told)


def test_many_layers_have_large_panels_for_the_submeshes_of_the_plan_and_small_ones_for_others() -> None:
    plan = example_plan(**LARGE)
    figure = stage_costs_figure(plan)
    large, small = traces(figure, "latencies")
    assert large.texttemplate == "%{text}"
    assert small.texttemplate is None
    used = {"×".join(map(str, stage.submesh)) for stage in plan.stages}
    assert set(panels_of(figure)[: len(used)]) == used
    assert figure.layout.height < 700


def test_a_panel_of_one_row_beside_others_has_no_empty_rows_above_it() -> None:
    first, all_of_it = (
        Panel(place=((n, 8), ""), least=least, most=most, useful=True, used=False)
        for n, least, most in ((1, 1, 2), (8, 16, 16))
    )
    grid = PanelGrid(layers=16, panels=(first, all_of_it), columns=2)
    assert grid.cell(1, (0, 15)) == (grid.corner(1)[0], grid.corner(1)[1]), "its only row, whose heading says 16"
    assert grid.shape[0] == grid.corner(0)[0] + 2
    assert list(grid.axes()[1]["ticktext"]) == ["1"]


def test_what_is_left_out_is_said(plan: Plan) -> None:
    large = example_plan(**LARGE)
    figure = stage_costs_figure(large)
    shapes = ["×".join(map(str, (m.nodes, m.devices_per_node))) for m in large.costs.submeshes]
    missing = [shape for shape in shapes if shape not in panels_of(figure)]
    drawn = set(cells_of(figure))
    rows = stage_costs_table(large)
    slowest = tuning.STAGE_COST_RATIO * large.predicted.t_max_seconds
    for row in rows:
        if name_of(row) not in drawn:
            assert not row["microbatches_fit"] or row["latency_seconds"] > slowest or len(missing) > 4
    title = title_of(figure)
    assert ("Left out are" in title) == (len(drawn) < len(rows))
    assert "Left out" not in title_of(stage_costs_figure(plan)) or len(cells_of(stage_costs_figure(plan))) < len(
        stage_costs_table(plan)
    )


def test_the_requested_panels(plan: Plan) -> None:
    assert panels_of(stage_costs_figure(plan, submeshes=[1])) == ["1×2"]
    assert sorted(panels_of(stage_costs_figure(example_plan(**LARGE), submeshes=range(11)))) == sorted(
        f"{m.nodes}×{m.devices_per_node}" for m in example_plan(**LARGE).costs.submeshes
    )


def test_the_figure_at_b_of_a_slider_has_few_traces() -> None:
    figure = stage_costs_figure(example_plan(**LARGE))
    assert len(figure.data) <= 10
    assert {trace.yaxis for trace in figure.data} == {None}, "one pair of axes: a second one is slow"
