import gzip
import sys
from typing import Any

import plotly.graph_objects as go
import pytest
from alpa_explore_widgets.elements.figures import CONFIG, PlotlyFigure, warm_up


def test_a_figure_carries_no_copy_of_the_library() -> None:
    figure = PlotlyFigure()
    figure.draw(go.Figure(go.Bar(y=[1, 2, 3])), "three bars")
    state = figure.get_state()
    assert sum(len(str(value)) for value in state.values()) < 32_000, "the library has 4.6 million"


def test_the_library_is_sent_only_when_a_page_requests_it(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = PlotlyFigure()
    sent: list[tuple[Any, list[bytes]]] = []
    monkeypatch.setattr(figure, "send", lambda content, buffers: sent.append((content, buffers)))
    figure._handle_custom_msg({"kind": "something else"}, [])
    assert sent == []
    figure._handle_custom_msg({"kind": "request plotly"}, [])
    ((content, (packed,)),) = sent
    assert content == {"kind": "plotly"}
    assert len(packed) < 2_000_000
    assert b"Plotly" in gzip.decompress(packed)


def test_no_button_of_a_figure_leads_off_the_machine() -> None:
    assert CONFIG["showSendToCloud"] is False
    assert CONFIG["displaylogo"] is False


def test_the_height_and_the_name_of_a_figure_come_with_it() -> None:
    figure = PlotlyFigure()
    figure.draw(go.Figure(layout={"height": 333}), "nothing much")
    assert (figure.height, figure.label) == (333, "nothing much")


def test_repeated_text_is_compressed_and_an_equal_figure_is_no_change() -> None:
    figure, sent = PlotlyFigure(), []
    figure.observe(sent.append, "packed")
    for _ in range(2):
        figure.draw(go.Figure(go.Bar(y=[1, 2], hovertext=["the same words " * 1000] * 2)), "two bars")
    assert len(figure.figure_json) > 30_000 > 10 * len(figure.packed)
    assert len(sent) == 1


def test_after_the_warm_up_the_modules_of_the_figures_of_tabs_are_loaded() -> None:
    warm_up()
    for name in ("decisions.layers", "timelines.timeline", "comparisons.microbatches", "accuracy", "dataflow"):
        assert f"alpa_explore.figures.{name}" in sys.modules
