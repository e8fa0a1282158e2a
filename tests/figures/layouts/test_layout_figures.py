"""The figures of layouts show the numbers of their tables; what does not fit, the plan and measured runs are marked."""

from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore.accuracy.error_band import usable_bytes
from alpa_explore.accuracy.measured_run import MeasuredRun
from alpa_explore.baselines.layout import Layout
from alpa_explore.figures.keys import read_key
from alpa_explore.figures.layouts import (
    log_ticks,
    scaling_curve_figure,
    scaling_curve_table,
    scatter_figure,
    scatter_sentence,
)
from alpa_explore.uniform_layouts.beside_plan import PlanAsLayout
from alpa_explore.uniform_layouts.measured import MeasuredLayout
from alpa_explore.uniform_layouts.ranking import Layouts, PricedLayout, ranked
from alpa_explore.uniform_layouts.report import beside_run
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
        once_seconds=0.25 * seconds,
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


def test_a_layout_is_a_point_of_memory_and_time_that_opens_where_it_fits(layouts: Layouts) -> None:
    figure = scatter_figure(layouts)
    one, two = trace_of(figure, "PP 1"), trace_of(figure, "PP 2")
    assert list(two.y) == [3.0]
    assert list(one.y) == [2.0, 2.5, 1.0], "4 s is too slow to be looked at"
    assert list(one.x) == pytest.approx([60e9 / 2**30, 60e9 / 2**30, 62e9 / 2**30])
    assert list(one.customdata) == ["layout:1", "layout:2", ""], "what does not fit does not open"
    assert [layouts.ranked[int(read_key(k)["layout"]) - 1].seconds for k in one.customdata[:2]] == [2.0, 2.5]
    assert one.marker.opacity[2] < one.marker.opacity[0]
    assert "needs &lt;more&gt;" in one.hovertext[2], "names are escaped"
    assert set(trace_of(figure, "usable").x) == {usable_bytes(layouts.cluster.device.memory_bytes) / 2**30}
    filtered = scatter_figure(layouts, where={"recompute": "full"})
    assert list(trace_of(filtered, "PP 1").y) == [2.5]


def test_the_frontier_falls_with_memory(layouts: Layouts) -> None:
    sizes = ((0, 1.0), (2, 0.5), (3, 0.25))
    leaner = {at: replace(layouts.ranked[at], bytes=60e9 * share) for at, share in sizes}
    several = replace(layouts, ranked=tuple(leaner.get(at, one) for at, one in enumerate(layouts.ranked)))
    front = trace_of(scatter_figure(replace(several, ranked=several.ranked[:3])), "frontier")
    assert (list(front.x), list(front.y)) == ([30e9 / 2**30, 60e9 / 2**30], [3.0, 2.0])


def test_the_plan_and_measured_runs_stand_at_their_memory_and_time(layouts: Layouts) -> None:
    plan = PlanAsLayout(
        layout=Layout(tensor=4),
        words="TP 4",
        samples=8,
        seconds=3.9,
        best=layouts.best,
        priced=layouts.ranked[3],
        bytes=2.0**35,
    )
    run = MeasuredRun(source="s", line=2, device="h100", software="megatron", gpus=4, model="m", precision="bf16")
    measured = (MeasuredLayout(run=run, seconds=2.2, priced=layouts.ranked[0]),)
    figure = scatter_figure(layouts, plan=plan, measured=measured)
    assert (trace_of(figure, "the plan").x[0], trace_of(figure, "the plan").y[0]) == (32.0, 3.9)
    assert list(trace_of(figure, "measured").y) == [2.2]
    assert list(trace_of(figure, "error").y) == [2.0, 2.2, None], "tied to the prediction"
    assert "measured 2.2 s, predicted 2 s" in trace_of(figure, "measured").hovertext[0]
    sentence = scatter_sentence(layouts, plan, measured)
    assert "takes 3.9 s (4 s where it is priced as a layout): the best uniform layout takes 48.7 % less" in sentence
    assert "A measured run of this kind, TP 2" in sentence


def test_a_plan_that_is_slower_than_a_measured_run_says_by_what_and_the_run_opens(layouts: Layouts) -> None:
    own = replace(layouts.ranked[3], once_seconds=layouts.ranked[0].once_seconds + 0.5)
    plan = PlanAsLayout(layout=own.layout, words="TP 4", samples=8, seconds=4.25, best=layouts.best, priced=own)
    run = MeasuredRun(source="s", line=2, device="h100", software="megatron", gpus=4, model="m", precision="bf16")
    measured = MeasuredLayout(run=run, seconds=2.2, priced=layouts.ranked[0])
    assert beside_run(plan, measured) == (
        "The plan takes 2.05 s more than the run: + 1.5 s passes of microbatches, + 500 ms filling the pipeline, "
        "gradient sync and update, + 250 ms its price operator by operator, − 200 ms that the run's own layout is "
        "predicted too short."
    )
    assert beside_run(replace(plan, priced=None), measured) == (
        "The plan takes 2.05 s more than the run: + 2.25 s another layout, − 200 ms that the run's own layout is "
        "predicted too short."
    )
    assert beside_run(replace(plan, incomparable="another batch"), measured) == ""
    shown = trace_of(scatter_figure(layouts, plan=plan, measured=[measured]), "measured")
    assert "The plan takes 2.05 s more than the run: " in shown.hovertext[0]
    assert list(shown.customdata) == ["layout:1"]
    assert scatter_sentence(layouts, plan, [measured]).endswith(beside_run(plan, measured))


def test_where_none_fits_the_sentence_says_where_it_does(layouts: Layouts) -> None:
    larger = replace(layouts, cluster=ax.Cluster.parse("2x4:h100"), on_faster_links=None)
    tight = replace(layouts, ranked=layouts.ranked[-1:], larger=larger)
    said = scatter_sentence(tight)
    assert f". On 2x4:h100, 8 devices, 4 of 5 fit; the fastest is {layouts.ranked[0].words}: 2 s, MFU " in said
    assert "bandwidth" not in said
    links = replace(larger, on_faster_links=replace(layouts.ranked[0], seconds=1.5))
    assert "With twice the bandwidth between nodes it takes 1.5 s (−25 %)." in scatter_sentence(
        replace(tight, larger=links)
    )
    assert list(trace_of(scatter_figure(tight), "frontier").x) == []


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


def test_a_device_with_idealised_software_says_so_beside_fitted_ones(scaling: Scaling) -> None:
    ideal = ScalingPoint(
        cluster=ax.Cluster.parse("2x8:v100"), state="priced", best=priced(Layout(data=8), 6.0), layouts=9
    )
    figure = scaling_curve_figure(replace(scaling, points=(*scaling.points, ideal)))
    assert {"H100", "V100, ideal"} <= {trace.name for trace in figure.data}
    assert f"software: {ideal.cluster.software.label}" in trace_of(figure, "v100 fits").hovertext[0]


def test_the_mark_beside_a_name_is_that_of_its_curve_and_one_that_fonts_have(scaling: Scaling) -> None:
    clusters = [ax.Cluster.parse(f"2x8:{name}") for name in ("v100", "h100", "h200", "b200", "b300", "gb200", "gb300")]
    seen = [ScalingPoint(cluster=c, state="priced", best=priced(Layout(data=8), 6.0), layouts=9) for c in clusters]
    figure = scaling_curve_figure(replace(scaling, points=tuple(seen)))
    shapes = {"●": "circle", "■": "square", "◆": "diamond", "▲": "triangle-up", "▼": "triangle-down"}
    shapes |= {"◄": "triangle-left", "►": "triangle-right"}
    symbols = {trace.name: trace.marker.symbol for trace in figure.data if trace.mode == "lines+markers"}
    for text in figure.layout.yaxis.ticktext:
        mark, name = text.partition(">")[2][0], text.partition("</span> ")[2]
        assert symbols[name] == shapes[mark]
    assert len(set(symbols.values())) == len(clusters)


def test_the_rows_of_what_fits_say_seconds_dollars_or_what_is_missing(scaling: Scaling) -> None:
    figure = scaling_curve_figure(scaling)
    assert list(trace_of(figure, "h100 fits").text) == [
        "✕ −3 GiB",
        *(f'✓ {time}<br><span style="font-size:10px">DP8<br>55.88 GiB</span>' for time in ("4 s", "2.5 s")),
    ]
    assert [text.split("</span> ")[1] for text in figure.layout.yaxis.ticktext] == ["H100", "B200"], "the legend"
    fits = trace_of(figure, "b200 fits")
    assert list(fits.text) == ['✓ 3 s<br><span style="font-size:10px">DP8<br>55.88 GiB, 27 $ a B tokens</span>', "…"]
    assert [read_key(key)["change"] for key in fits.customdata] == ["cluster=1x8:b200", "cluster=2x8:b200"], (
        "a click plans there"
    )
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
