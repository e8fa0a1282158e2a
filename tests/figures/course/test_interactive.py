"""A figure with controls: its states, those that cannot exist, and the document for a page without a kernel."""

import json

import plotly.graph_objects as go
import pytest

from alpa_explore.errors import OptionError
from alpa_explore.figures import tuning
from alpa_explore.figures.course.interactive import Control, InteractiveFigure
from alpa_explore.figures.course.training.attention import causal_balance_figure, ring_figure
from alpa_explore.figures.course.training.experts import routing_figure
from alpa_explore.figures.course.training.memory import zero_figure
from alpa_explore.figures.course.training.schedules import schedule_figure


def draw(height: int, name: str, *, theme: str = "light") -> go.Figure:
    """A bar, which cannot be 3 high under the name 'low'."""
    if height == 3 and name == "low":
        raise OptionError("Too high", found="3", remedy="Choose 2.")
    return go.Figure(go.Bar(x=[name], y=[height]), layout={"title": {"text": theme}, "template": "plotly_white"})


OF_THE_COURSE = [causal_balance_figure, ring_figure, routing_figure, zero_figure, schedule_figure]
FIGURE = InteractiveFigure(
    draw=draw,
    controls=(Control("height", "Height", (1, 2, 3), 2), Control("name", "Name", ("low", "high"), "high")),
    label="A bar",
)


def test_every_combination_of_values_is_a_state() -> None:
    states = dict(FIGURE.states())
    assert list(states) == [(i, j) for i in range(3) for j in range(2)]
    assert states[1, 1].data[0].y == (2,)
    assert states[2, 0] == "Too high: 3. Choose 2."
    assert FIGURE.start == {"height": 2, "name": "high"}


def test_the_document_is_json_with_one_template_and_the_reasons() -> None:
    document = json.loads(json.dumps(FIGURE.document()))
    height = {"label": "Height", "values": [1, 2, 3], "texts": ["1", "2", "3"], "plays": False, "start": 1}
    assert document["controls"][0] == height
    assert document["template"]
    assert document["states"]["2,0"] == "Too high: 3. Choose 2."
    assert "template" not in document["states"]["0,0"]["layout"]


def test_a_control_begins_at_one_of_its_values_and_pages_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="Height begins at a value"):
        InteractiveFigure(draw=draw, controls=(Control("height", "Height", (1,), 7),), label="A bar")
    monkeypatch.setattr(tuning, "COURSE_STATES", 5)
    with pytest.raises(OptionError, match="6 states of 5"):
        InteractiveFigure(draw=draw, controls=FIGURE.controls, label="A bar")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("figure", OF_THE_COURSE, ids=lambda figure: figure.label)
def test_the_first_state_of_a_figure_of_the_course_can_be_drawn(figure: InteractiveFigure, theme: str) -> None:
    drawn = figure.state(figure.start, theme=theme)
    assert isinstance(drawn, go.Figure)
    assert drawn.layout.title.text
    assert len(drawn.data) >= 2
