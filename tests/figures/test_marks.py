"""A grid of plots made without plotly's checks: it is where plotly would put it, and plotly accepts it."""

import plotly.graph_objects as go
import pytest
from plotly.subplots import make_subplots

from alpa_explore.figures.comparisons.search import search_figure
from alpa_explore.figures.marks import Plots, bars
from alpa_explore.figures.style import finished
from alpa_explore.planner.replan import replan
from alpa_explore.plans.report.compare import NoPlan
from tests.plans.example import example_plan


@pytest.mark.parametrize(("rows", "columns"), [([1.0], [1.0]), ([1.0, 2.0, 3.0], [1.0]), ([3.0, 1.0], [0.4, 0.6])])
def test_plots_and_titles_are_where_plotly_puts_them(rows: list[float], columns: list[float]) -> None:
    names = [f"plot {i}" for i in range(len(rows) * len(columns))]
    drawn = Plots(rows, columns, spacing=(0.1, 0.05), titles=names).figure("A title.", height=300)
    figure = finished(drawn, "light")
    expected = make_subplots(
        len(rows),
        len(columns),
        row_heights=rows,
        column_widths=columns,
        horizontal_spacing=0.1,
        vertical_spacing=0.05,
        subplot_titles=names,
    )
    for number in range(1, len(names) + 1):
        for axis in (f"xaxis{number}", f"yaxis{number}"):
            assert figure.layout[axis].domain == pytest.approx(expected.layout[axis].domain)
            assert figure.layout[axis].anchor == expected.layout[axis].anchor
    for made, other in zip(figure.layout.annotations, expected.layout.annotations, strict=True):
        assert (made.text, made.x, made.y) == (other.text, pytest.approx(other.x), pytest.approx(other.y))


@pytest.mark.slow
def test_rounding_carries_no_plot_beyond_the_figure() -> None:
    for stages in range(1, 65):
        for rows in range(3, 9):
            heights = [24.0 * stages, 32.0 * rows]
            figure = Plots(heights, [0.42, 0.58], spacing=(0.2, 92 / (sum(heights) + 92))).figure(
                "A title.", height=300
            )
            assert all(0.0 <= end <= 1.0 for axis in finished(figure, "light").select_yaxes() for end in axis.domain)


def test_plots_of_a_column_share_their_x_axis_and_traces_are_on_the_axes_of_their_plot() -> None:
    plots = Plots([1.0, 1.0], shared_x=True)
    plots.add(bars([1], [2], "#000000"))
    plots.add(bars([1], [2], "#000000"), row=2)
    plots.x(2, title="below")
    plots.y(span=(0, 1))
    figure = finished(plots.figure("A title.", height=300), "dark")
    assert figure.layout.xaxis.matches == "x2"
    assert [trace.yaxis for trace in figure.data] == ["y", "y2"]
    assert (figure.layout.xaxis.title.text, figure.layout.xaxis2.title.text) == (None, "below")
    assert figure.layout.yaxis.range == figure.layout.yaxis2.range == (0, 1)


def test_plotly_accepts_the_legend_of_plans_that_do_not_exist() -> None:
    plan = example_plan()
    failed = NoPlan(name="zero-3", reason="needs 20 GiB of 16 GiB", model=plan.model.name)
    figure = search_figure(plan, tried=[replan(plan, num_microbatches=8), plan], failed=[failed])
    names = [trace.name for trace in go.Figure(figure.to_dict()).data]
    assert names[-1] == "no plan: zero-3: needs 20 GiB of 16 GiB"
