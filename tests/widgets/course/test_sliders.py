"""A figure of the course with its sliders in a notebook."""

import json

import ipywidgets
import plotly.graph_objects as go
import pytest
from alpa_explore_widgets.course import Player, sliders

from alpa_explore.figures.course.interactive import MIME_TYPE, WHOLE, Control, InteractiveFigure
from alpa_explore.figures.course.training.schedules import schedule_figure


def test_a_slider_draws_another_state_and_a_refused_one_is_a_sentence() -> None:
    shown = sliders(schedule_figure)
    names, devices, microbatches, _ratio = shown.fields
    assert "1f1b, 4 devices, B = 8" in json.loads(shown.figure.figure_json)["layout"]["title"]["text"]
    devices.value = 8
    names.value = "dualpipe-v"
    assert "at least two microbatches" in shown.problem.value
    assert shown.figure.busy
    microbatches.value = 16
    assert shown.problem.value == ""
    assert not shown.figure.busy
    assert "dualpipe-v, 8 devices, B = 16" in json.loads(shown.figure.figure_json)["layout"]["title"]["text"]


def test_all_states_are_part_of_the_output_only_while_a_page_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = sliders(schedule_figure)
    monkeypatch.delenv(WHOLE, raising=False)
    assert MIME_TYPE not in shown._repr_mimebundle_()
    monkeypatch.setattr(type(shown.interactive), "document", lambda _: {"states": {}})
    monkeypatch.setenv(WHOLE, "1")
    assert shown._repr_mimebundle_()[MIME_TYPE] == {"states": {}}


def test_a_player_moves_its_slider_and_follows_it_and_texts_stand_for_values() -> None:
    figure = InteractiveFigure(
        draw=lambda step, *, theme="light": go.Figure(layout={"title": {"text": f"step {step:g}"}}),
        controls=(
            Control(name="step", label="Step", values=(0.5, 1.5, 2.5), texts=("a", "b", "c"), start=1.5, plays=True),
        ),
        label="Steps",
    )
    shown = sliders(figure)
    (slider,), player = shown.fields, shown.players["step"]
    assert (slider.label, player.clock.value, player.clock.max) == ("b", 1, 2)
    player.clock.value = 2
    assert json.loads(shown.figure.figure_json)["layout"]["title"]["text"] == "step 2.5"
    slider.value = 0.5
    assert player.clock.value == 0
    assert player in shown.children[1].children


def test_the_button_of_a_player_starts_its_clock_and_stops_it() -> None:
    player = Player(ipywidgets.SelectionSlider(options=["a", "b", "c"]))
    assert player.button.description == "Play"
    player.button.click()
    assert player.clock.playing
    assert player.button.description == "Pause"
    player.clock.playing = False  # as the page does at the end
    assert player.button.description == "Play"
