"""The list of Why: each lever and each plan that was made once, ranked, with stars that survive and the way back."""

import csv
import io
import re
from dataclasses import replace
from typing import Any

import pytest
from alpa_explore_widgets.elements.tables import table_csv
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.panels.aside import other_plans
from alpa_explore_widgets.panels.controls import MICROBATCH
from alpa_explore_widgets.session.history import Entry, History
from alpa_explore_widgets.session.tuning import HISTORY_ENTRIES

from alpa_explore.figures.keys import aside_key, key
from alpa_explore.plans.report.compare import change_text
from tests.waiting import LIMIT_SECONDS
from tests.widgets.conftest import SETTINGS, make_plan, plan_and_wait, type_and_wait


@pytest.fixture
def panel(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Three plans: B 8, 16 and 32 of equal microbatches, which no lever asks for; the last is on screen."""
    monkeypatch.setattr("alpa_explore_widgets.session.tuning.SAME_MOVE_SECONDS", 0.0)
    explorer.controls.kept.value = MICROBATCH
    plan_and_wait(explorer.session)
    for count in (16, 32):
        type_and_wait(explorer, num_microbatches=count)
    explorer.go_to_tab("Why")
    return explorer.panels[explorer.tabs.selected]


def yours(panel: Any) -> list[str]:
    """The rows of plans that answer no lever, as text."""
    rows = re.findall(r"<li>(.*?)</li>", panel.list.value.partition("<h4>Yours")[2])
    return [" · ".join(re.findall(r">([^<]+)<", row)) for row in rows]


def test_each_plan_that_was_made_is_named_by_what_differs_from_that_on_screen(panel: Any, explorer: Explorer) -> None:
    rows, plans = yours(panel), explorer.session.store.state.history.plans
    assert len(rows) == 3
    assert [row.partition(" · ")[0] for row in rows] == ["this plan", "B 32 → 16", "B 32 → 8"], "the fastest first"
    assert "on screen" in rows[0]
    assert "Open" not in rows[0]
    slower = plans[2].samples_per_second / plans[0].samples_per_second - 1
    assert rows[2].endswith(f" · {change_text(slower)} · Open")


def test_a_plan_that_answers_a_lever_is_listed_there_alone(panel: Any, explorer: Explorer) -> None:
    panel.plan_all.click()
    assert explorer.wait(LIMIT_SECONDS)
    state, levers = explorer.session.store.state, explorer.session.levers()
    numbers = [state.history.place(lever.settings) for lever in levers]
    numbers += [number for number, *_ in other_plans(state, levers)]
    assert sorted(numbers) == list(range(len(state.history.entries)))
    opened = [int(n) for n in re.findall(r'data-alpa-key="plan:(\d+)"', panel.list.value)]
    assert sorted([*opened, state.history.position]) == sorted(numbers), "each opens but that on screen"


def test_a_star_survives_a_slider_and_what_is_tried_after_it(panel: Any, explorer: Explorer) -> None:
    session = explorer.session
    explorer.bridge.selection = aside_key("keep", 2)  # as a click on a star does
    assert panel.list.value.count("alpa-kept") == 1
    kept = session.store.state.history.entries[2].plan
    type_and_wait(explorer, num_microbatches=64)
    assert session.store.state.history.entries[2].plan is kept
    assert yours(panel)[0].startswith("B 64 → 32"), "what is kept is on top"
    explorer.bridge.selection = aside_key("keep", 2)
    assert "alpa-kept" not in panel.list.value
    for nonsense in (aside_key("keep", 99), aside_key("keep", "nonsense"), "nonsense"):
        explorer.bridge.selection = nonsense
    assert "alpa-kept" not in panel.list.value


def test_what_is_kept_is_not_replaced_and_the_last_to_be_dropped() -> None:
    counts, plan = range(1, HISTORY_ENTRIES + 3), make_plan()
    entries = [Entry(settings=replace(SETTINGS, num_microbatches=b), plan=replace(plan)) for b in counts]
    history = History()
    for entry in entries[:3]:
        history = history.add(entry)
    history = history.keep(0).keep(2)
    assert history.add(entries[3], replace_last=True).entries[2].plan is entries[2].plan
    for entry in entries[3:]:
        history = history.add_without_showing(entry)
    assert len(history.entries) == HISTORY_ENTRIES
    assert history.entries[0].plan is entries[0].plan
    assert history.entries[1].plan is entries[2].plan, "the other one between them went"
    assert history.entries[history.position].plan is entries[2].plan, "and what was on screen still is"
    assert not history.keep(0, on=False).entries[0].kept


def test_a_row_brings_its_plan_back_with_its_settings(panel: Any, explorer: Explorer) -> None:
    explorer.bridge.selection = key(plan=0)
    assert explorer.settings.num_microbatches == 8
    assert [row.partition(" · ")[0] for row in yours(panel)] == ["B 8 → 32", "B 8 → 16", "this plan"]


def test_the_table_has_the_parts_each_lever_and_each_plan_and_search_every_setting_that_differs(
    panel: Any, explorer: Explorer, show_tab: Any
) -> None:
    state = explorer.session.store.state
    rows = panel.rows(state)
    kinds = [row["about"] for row in rows]
    assert kinds.count("yours") == 3
    assert kinds.count("free") + kinds.count("bought") == len(explorer.session.levers())
    assert {row["how"] for row in rows if row["about"] == "free"} == {"not asked yet"}
    found = list(csv.DictReader(io.StringIO(table_csv(show_tab("Search").rows(state)))))
    assert [row["B"] for row in found] == ["8", "16", "32"]
    assert float(found[1]["iteration_seconds"]) == state.history.plans[1].predicted.iteration_seconds
    assert "model" not in found[0], "the same in all"


def test_a_picture_is_not_offered_where_there_is_none(panel: Any, explorer: Explorer, show_tab: Any) -> None:
    assert {"png", "svg"} <= set(explorer.toolbar.widget.disabled)
    show_tab("Layers")
    assert not {"png", "svg"} & set(explorer.toolbar.widget.disabled)


@pytest.mark.parametrize(("fraction", "text"), [(0.0, "±0"), (-0.31, "−31 %"), (0.05, "+5 %"), (1e-5, "±0")])
def test_a_change_has_its_sign(fraction: float, text: str) -> None:
    assert change_text(fraction) == text
