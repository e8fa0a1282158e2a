"""The figures of measured runs show the numbers of the record, also of one without runs."""

from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import pytest

from alpa_explore.accuracy.record import Record
from alpa_explore.figures.accuracy.layout_choices import layout_choices_figure, layout_choices_table
from alpa_explore.figures.accuracy.marks import NO_RUNS, run_text
from alpa_explore.figures.accuracy.predictions import predictions_figure, predictions_table
from alpa_explore.figures.accuracy.sources import sources_figure, sources_table
from alpa_explore.figures.accuracy_page import accuracy_html
from tests.accuracy.example import example_record, run
from tests.figures.test_figures import OF_RECORD, title_of

RECORD = example_record()


def traces(figure: go.Figure, start: str) -> list[Any]:
    return [trace for trace in figure.data if (trace.name or "").startswith(start)]


@pytest.mark.parametrize("draw", OF_RECORD)
def test_without_runs_a_figure_says_so(draw: Callable[..., go.Figure]) -> None:
    assert title_of(draw(Record())) == NO_RUNS


def test_every_run_with_a_prediction_is_a_point_at_its_times() -> None:
    figure = predictions_figure(RECORD)
    (first,), (second,) = traces(figure, "The first"), traces(figure, "The second")
    assert list(first.x) == [r.measured_seconds for r in RECORD.of("first")]
    assert list(second.y) == [2.0, 2.1, 4.0], "those that failed have no time"
    assert first.marker.symbol[-1].endswith("-open"), "left out"
    assert first.marker.symbol[0] != second.marker.symbol[0], "colour is not the only sign"
    assert traces(figure, "The third") == []
    (line,) = traces(figure, "exact, ± 10 %, ± 25 %")
    assert list(line.x) == list(line.y)


def test_the_bands_are_ten_and_twenty_five_percent_of_the_measured_value() -> None:
    figure = predictions_figure(RECORD)
    for name, share in (("within 10 %", 0.1), ("within 25 %", 0.25)):
        (upper,) = traces(figure, name)
        lower = figure.data[list(figure.data).index(upper) - 1]
        assert upper.y[0] / upper.x[0] == pytest.approx(1 + share)
        assert lower.y[0] / lower.x[0] == pytest.approx(1 - share)


def test_memory_has_the_runs_whose_source_prints_it() -> None:
    (first,) = traces(predictions_figure(RECORD, quantity="bytes"), "The first")
    assert len(first.x) == 6
    assert "6 runs" in predictions_figure(RECORD, quantity="bytes").layout.title.text


def test_a_hover_text_says_all_of_its_run() -> None:
    text = run_text(RECORD, RECORD.runs[0])
    for part in (
        "GPT-2B on 8 × h100",
        "TP 1 · PP 1 · DP 8 · 32 × 1 sample",
        "predicted 2.2 s, measured 2 s: +10 %",
        "memory predicted 30 GiB, measured 40 GiB: −25 %",
        "The first (megatron), line 2",
    ):
        assert part in text
    assert "figures were fitted to it" in run_text(RECORD, RECORD.runs[12])
    assert "left out: a fault" in run_text(RECORD, RECORD.runs[13])


def test_a_source_has_a_bar_over_the_middle_of_its_errors() -> None:
    figure = sources_figure(RECORD)
    bars = [t for t in figure.data if t.type == "bar"]
    assert [b.y[0] for b in bars] == ["The first", "The second"], "the third has no prediction"
    assert bars[0].base[0] == pytest.approx(-20)
    assert bars[0].base[0] + bars[0].x[0] == pytest.approx(10)
    rows = {row["source"]: row for row in sources_table(RECORD)}
    assert rows["The second"]["fits_but_failed"] == rows["The second"]["too_large_and_failed"] == 1
    assert rows["The third"]["refused"] == 1


def test_a_choice_is_a_mark_at_its_regret() -> None:
    figure = layout_choices_figure(RECORD)
    (second,) = traces(figure, "The second")
    assert list(second.y) == [pytest.approx(10)]
    assert "1 that failed were said to fit and to be faster" in second.hovertext[0]
    (row,) = [r for r in layout_choices_table(RECORD) if r["source"] == "The second"]
    assert (row["layouts"], row["regret_fraction"]) == (3, pytest.approx(0.1))


def test_thousands_of_runs_are_one_small_figure() -> None:
    many = Record(runs=tuple(run(n, 1.0 + n % 7, 2.0) for n in range(2, 2500)), sources=RECORD.sources)
    figure = predictions_figure(many)
    assert sum(len(t.x) for t in figure.data) < 2600
    assert len(figure.to_json(validate=False) or "") < 1.2e6


def test_the_table_has_every_run_also_those_without_a_prediction() -> None:
    rows = predictions_table(RECORD)
    assert len(rows) == len(RECORD.runs)
    assert rows[-1]["not_counted_because"] == "96 experts"


def test_the_page_has_every_figure_and_its_table() -> None:
    page = accuracy_html(RECORD)
    for name in ("time", "memory", "sources", "choices", "weak-spots"):
        assert f'<section id="section-{name}"' in page
    assert "20 measured runs from 3 sources" in page
    assert "No measured runs are stored" in accuracy_html(Record())
