"""The figures of layouts show the numbers of their tables; what does not fit, the plan and measured runs are marked."""

from dataclasses import replace
from typing import Any

import pytest

import alpa_explore as ax
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.baselines.layout import Layout
from alpa_explore.figures.keys import read_key
from alpa_explore.figures.layouts.heat_map import best_of_cells, heat_map_figure, heat_map_sentence, heat_map_table
from alpa_explore.figures.layouts.scaling_curve import log_ticks, scaling_curve_figure, scaling_curve_table
from alpa_explore.uniform_layouts.beside_plan import PlanAsLayout
from alpa_explore.uniform_layouts.measured import MeasuredLayout
from alpa_explore.uniform_layouts.ranking import Layouts, PricedLayout, ranked
from alpa_explore.uniform_layouts.scaling import Scaling, ScalingPoint, with_prices
from tests.figures.test_figures import trace_of


def priced(layout: Layout, seconds: float, lacks: float = 0.0) -> PricedLayout:
    return PricedLayout(
        layout=layout,
        seconds=seconds,
        bytes=60e9 + lacks,
        reason="stage 0 needs <more>" if lacks else "",
        missing_bytes=lacks,
        tokens_per_second=1e6 / seconds,
        mfu=0.5 / seconds,
        parts_bytes=(("weights", 60e9 + lacks),),
        blocks=(),
    )


def priced_layouts() -> Layouts:
    """TP 1, 2, 4 on four devices; with TP 1 nothing fits, and TP 4 has no pipeline."""
    return Layouts(
        model="llama-3-8b",
        cluster=ax.Cluster.parse("1x4:h100"),
        global_batch=16,
        sequence=8192,
        precision="bf16",
        ranked=ranked(
            [
                priced(Layout(tensor=1, data=4), 1.0, lacks=2e9),
                priced(Layout(tensor=2, data=2), 2.0),
                priced(Layout(tensor=2, data=2, recompute="full"), 2.5),
                priced(Layout(tensor=2, pipeline=2), 3.0),
                priced(Layout(tensor=4), 4.0),
            ]
        ),
    )


@pytest.fixture
def layouts() -> Layouts:
    return priced_layouts()


def grid(values: Any) -> list[list[Any]]:
    return [list(row) for row in values]


def test_each_cell_has_the_fastest_of_the_rest(layouts: Layouts) -> None:
    heat = trace_of(heat_map_figure(layouts), "fits")
    assert grid(heat.z) == [[None, 2.0, 4.0], [None, 3.0, None]]
    assert grid(heat.text) == [["", "2", "4"], ["", "3", ""]]
    assert best_of_cells(layouts, "tensor", "pipeline")[2, 1].layout.recompute == "none"
    filtered = trace_of(heat_map_figure(layouts, where={"recompute": "full"}), "fits")
    assert grid(filtered.z) == [[None, 2.5, None], [None, None, None]]


def test_a_cell_where_nothing_fits_is_crossed_out_with_the_reason(layouts: Layouts) -> None:
    figure = heat_map_figure(layouts)
    crossed = trace_of(figure, "does not fit")
    assert (list(crossed.x), list(crossed.base)) == ([0], [-0.48])
    assert crossed.marker.pattern.shape == "/"
    assert "needs &lt;more&gt;" in crossed.hovertext[0], "names are escaped"
    assert list(trace_of(figure, "✕").text) == ["✕"], "and none where there is no layout"


def test_the_fastest_the_plan_and_measured_runs_are_marked_in_their_cells(layouts: Layouts) -> None:
    plan = PlanAsLayout(
        layout=Layout(tensor=4), words="TP 4", samples=8, seconds=3.9, best=layouts.best, priced=layouts.ranked[3]
    )
    run = MeasuredRun(source="s", line=2, device="h100", software="megatron", gpus=4, model="m", precision="bf16")
    measured = (MeasuredLayout(run=run, seconds=2.2, priced=layouts.ranked[0]),)
    figure = heat_map_figure(layouts, plan=plan, measured=measured)
    places = {name: (round(trace_of(figure, name).x[0]), round(trace_of(figure, name).y[0])) for name in MARKS}
    assert places == {"fastest": (1, 0), "the plan": (2, 0), "measured": (1, 0)}
    assert "measured 2.2 s, predicted 2 s" in trace_of(figure, "measured").hovertext[0]
    sentence = heat_map_sentence(layouts, plan, measured)
    assert "takes 3.9 s (4 s where it is priced as a layout): the best uniform layout takes 48.7 % less" in sentence
    assert "A measured run of this kind, TP 2" in sentence


MARKS = ("fastest", "the plan", "measured")


def test_a_plan_that_is_no_layout_is_said_in_words_and_not_marked(layouts: Layouts) -> None:
    plan = PlanAsLayout(layout=None, words="2 stages of unlike sizes", seconds=1.9, samples=8, best=layouts.best)
    assert "the plan" not in [t.name for t in heat_map_figure(layouts, plan=plan).data]
    assert "The plan (2 stages of unlike sizes) takes 1.9 s" in heat_map_sentence(layouts, plan)


def test_where_none_fits_the_sentence_says_where_it_does(layouts: Layouts) -> None:
    larger = replace(layouts, cluster=ax.Cluster.parse("2x4:h100"), on_faster_links=None)
    tight = replace(layouts, ranked=layouts.ranked[-1:], larger=larger)
    said = heat_map_sentence(tight)
    assert f". On 2x4:h100, 8 devices, 4 of 5 fit; the fastest is {layouts.ranked[0].words}: 2 s, MFU " in said
    assert "bandwidth" not in said
    links = replace(larger, on_faster_links=replace(layouts.ranked[0], seconds=1.5))
    assert "With twice the bandwidth between nodes it takes 1.5 s (−25 %)." in heat_map_sentence(
        replace(tight, larger=links)
    )
    assert grid(trace_of(heat_map_figure(tight), "fits").z) == [[None]]


def test_the_table_has_every_layout_in_order(layouts: Layouts) -> None:
    rows = heat_map_table(layouts)
    assert [row["iteration_seconds"] for row in rows] == [2.0, 2.5, 3.0, 4.0, 1.0]
    assert [row["fits"] for row in rows] == [True, True, True, True, False]
    assert [row["rank"] for row in heat_map_table(layouts, where={"pipeline": 2})] == [1]


@pytest.fixture
def scaling() -> Scaling:
    def point(text: str, seconds: float | None) -> ScalingPoint:
        cluster = ax.Cluster.parse(text)
        if seconds is None:
            nearest = priced(Layout(data=8, recompute="full"), 9.0, lacks=3 * 2.0**30)
            return ScalingPoint(cluster=cluster, state="does not fit", nearest=nearest, layouts=3)
        return ScalingPoint(cluster=cluster, state="priced", best=priced(Layout(data=8), seconds), layouts=9)

    points = (point("1x8:h100", None), point("2x8:h100", 4.0), point("4x8:h100", 2.5), point("1x8:b200", 3.0))
    waiting = ScalingPoint(cluster=ax.Cluster.parse("2x8:b200"))
    found = Scaling(
        model="llama-3-70b", global_batch=128, sequence=8192, precision="bf16", points=(*points, waiting), whole=False
    )
    return with_prices(found, {"b200": 4.0})


def test_curves_are_those_of_the_table(scaling: Scaling) -> None:
    figure, rows = scaling_curve_figure(scaling), scaling_curve_table(scaling)
    rates, efficiencies = [t for t in figure.data if t.name == "H100"]
    known = [row for row in rows if row["device"] == "h100" and row["tokens_per_second"] is not None]
    assert list(rates.x) == [row["devices"] for row in known] == [16, 32]
    assert [round(rate) for rate in rates.y] == [row["tokens_per_second"] for row in known]
    assert list(efficiencies.y) == [row["efficiency_fraction"] for row in known] == [1.0, pytest.approx(0.8)]
    (ideal,) = [t for t in figure.data if t.name == "H100, perfect"]
    assert list(ideal.y) == pytest.approx([250_000, 500_000])


def test_the_rows_of_what_fits_say_seconds_dollars_or_what_is_missing(scaling: Scaling) -> None:
    figure = scaling_curve_figure(scaling)
    assert list(trace_of(figure, "h100 fits").text) == ["✕ −3 GiB", "✓ 4 s", "✓ 2.5 s"]
    fits = trace_of(figure, "b200 fits")
    assert list(fits.text) == ["✓ 3 s<br>27 $", "…"]
    assert [read_key(key)["place"] for key in fits.customdata] == ["1x8:b200", "2x8:b200"], "a click plans there"
    title = str(figure.layout.title.text).replace("<br>", " ")
    assert title.startswith("llama-3-70b fits from 16 H100, 8 B200 on")
    assert "cheapest on 1x8:b200, 27 dollars" in title
    assert title.endswith("1 of 5 clusters are not known yet.")


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([], []),
        ([300.0], [200.0, 500.0]),
        ([245_000.0, 961_057.0], [2e5, 5e5, 1e6]),
        ([1e3, 1e4], [1e3, 2e3, 5e3, 1e4, 2e4]),
    ],
)
def test_the_ticks_of_a_log_axis_enclose_the_values(values: list[float], ticks: list[float]) -> None:
    assert log_ticks(values) == pytest.approx(ticks)
