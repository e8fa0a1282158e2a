"""A figure of the course with its sliders in a notebook."""

from __future__ import annotations

import json

import pytest
from alpa_explore_widgets.course import sliders

from alpa_explore.figures.course.interactive import MIME_TYPE, WHOLE
from alpa_explore.figures.course.training.schedules import schedule_player


def test_a_slider_draws_another_state_and_a_refused_one_is_a_sentence() -> None:
    shown = sliders(schedule_player())
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
    shown = sliders(schedule_player())
    monkeypatch.delenv(WHOLE, raising=False)
    assert MIME_TYPE not in shown._repr_mimebundle_()
    monkeypatch.setattr(type(shown.interactive), "document", lambda _: {"states": {}})
    monkeypatch.setenv(WHOLE, "1")
    assert shown._repr_mimebundle_()[MIME_TYPE] == {"states": {}}
