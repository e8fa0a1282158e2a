"""The Timeline tab offers the schedules that are possible for the plan, and draws the chosen ones."""

import json
import threading
from dataclasses import replace

import pytest
from alpa_explore_widgets import explore
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tabs.of_plan import TimelinePanel

from alpa_explore.plans.plan import Plan
from alpa_explore.plans.schedule_stages import possible_schedules
from tests.plans.example import example_plan
from tests.widgets.conftest import SETTINGS, make_plan


@pytest.fixture
def eight_layers() -> Plan:
    return example_plan(num_layers=8, num_microbatches=16)


def state(plan: Plan) -> State:
    return State(settings=SETTINGS, plan=plan)


def names(field) -> list[str]:
    return [value for value, *_ in field.choices]


def test_only_schedules_that_exist_for_the_plan_are_offered(eight_layers: Plan) -> None:
    panel = TimelinePanel()
    panel.show(state(eight_layers), "light")
    assert names(panel.schedule) == list(possible_schedules(eight_layers))
    assert {"1f1b", "zb-v", "dualpipe", "interleaved-1f1b"} <= set(names(panel.schedule))
    assert names(panel.beside) == ["none", *names(panel.schedule)]
    panel.schedule.value = "interleaved-1f1b"
    assert "interleaved-1f1b" in panel.finding.value
    panel.show(state(make_plan()), "light")
    assert names(panel.schedule) == list(possible_schedules(make_plan()))
    assert "interleaved-1f1b" not in names(panel.schedule)
    assert panel.schedule.value == "1f1b"
    assert 'role="alert"' not in panel.finding.value


def test_the_schedule_of_the_plan_is_shown_until_another_one_is_chosen(eight_layers: Plan) -> None:
    pipeline = replace(eight_layers.options.pipeline, schedule="gpipe")
    own, panel = replace(eight_layers, options=replace(eight_layers.options, pipeline=pipeline)), TimelinePanel()
    panel.show(state(own), "light")
    assert panel.schedules() == ("gpipe",)
    panel.show(state(eight_layers), "light")
    assert panel.schedules() == ("1f1b",), "that of another plan"
    panel.schedule.value = "zb-v"
    panel.show(state(own), "light")
    assert panel.schedules() == ("zb-v",)


def test_a_choice_draws_again(eight_layers: Plan) -> None:
    panel = TimelinePanel()
    panel.show(state(eight_layers), "light")
    panel.beside.value = "gpipe"
    assert panel.schedules() == ("1f1b", "gpipe")
    assert "gpipe" in panel.finding.value
    before = panel.figure.figure_json
    panel.window.value = "end"
    assert panel.figure.figure_json != before


def test_a_part_of_the_overview_that_was_dragged_over_is_shown(eight_layers: Plan) -> None:
    panel = TimelinePanel()
    panel.show(state(eight_layers), "light")
    assert panel.window.value == "parts"
    panel.figure.brushed = [0.25, 0.5]
    assert panel.window.value == names(panel.window)[-1] == "dragged"
    total = eight_layers.timeline().makespan_seconds
    shown = json.loads(panel.figure.figure_json)["layout"]["xaxis"]["range"]
    assert shown == pytest.approx([0.25 * total, 0.5 * total])
    panel.window.value = "whole"
    panel.figure.brushed = []
    assert (panel.window.value, len(panel.window.choices)) == ("parts", 5)


def test_a_choice_is_drawn_under_the_lock_of_the_state() -> None:
    explorer = explore(example_plan(num_layers=8, num_microbatches=16))
    panel = next(p for p in explorer.panels if isinstance(p, TimelinePanel))
    explorer.tabs.selected = explorer.panels.index(panel)
    free: list[bool] = []

    def is_free() -> None:  # on a thread of its own, because the lock is reentrant
        free.append(explorer.session.store.lock.acquire(blocking=False))

    def drawn(_change: object) -> None:
        thread = threading.Thread(target=is_free)
        thread.start()
        thread.join()

    panel.figure.observe(drawn, "packed")
    panel.window.value = "end"
    assert free == [False]


def test_the_playback_has_the_tasks_and_the_parts_of_the_figure(eight_layers: Plan) -> None:
    panel = TimelinePanel()
    panel.show(state(eight_layers), "light")
    assert [len(chart["rows"]) for chart in panel.player.document["charts"]] == [len(eight_layers.stages)]
    panel.beside.value = "gpipe"
    assert [chart["name"] for chart in panel.player.document["charts"]] == ["1f1b", "gpipe"]
    panel.window.value = "end"
    (part,) = panel.player.document["charts"][0]["parts"]
    assert part["end"] == pytest.approx(panel.player.document["end"])
    assert part["start"] > 0
    panel.show(state(eight_layers), "light", as_table=True)
    assert panel.player.layout.display == "none"
