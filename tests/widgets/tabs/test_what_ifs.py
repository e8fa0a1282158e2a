"""The table of what was tried: what differs, sorting by numbers, pins that survive, and the way back to a plan."""

import csv
import io
from dataclasses import replace
from typing import Any

import pytest
from alpa_explore_widgets.elements.tables import table_csv
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.session.history import Entry, History
from alpa_explore_widgets.session.tuning import HISTORY_ENTRIES
from alpa_explore_widgets.tabs.history import WhatIfsPanel

from alpa_explore.plans.report.compare import change_text
from tests.widgets.conftest import SETTINGS, make_plan, plan_and_wait, type_and_wait


@pytest.fixture
def panel(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> WhatIfsPanel:
    """Three plans: B 8, 16 and 32; the last is on screen."""
    monkeypatch.setattr("alpa_explore_widgets.session.tuning.SAME_MOVE_SECONDS", 0.0)
    plan_and_wait(explorer.session)
    for count in (16, 32):
        type_and_wait(explorer, num_microbatches=count)
    explorer.go_to_tab("What-ifs")
    shown = explorer.panels[explorer.tabs.selected]
    assert isinstance(shown, WhatIfsPanel)
    return shown


def column(panel: WhatIfsPanel, heading: str) -> list[Any]:
    at = [name for name, *_ in panel.list.columns].index(heading)
    return [row["values"][at] for row in panel.list.rows]


def test_a_row_for_each_plan_with_the_settings_that_differ_and_bold_where_they_do(panel: WhatIfsPanel) -> None:
    headings = [name for name, *_ in panel.list.columns]
    assert "B" in headings
    assert "model" not in headings, "the same in all"
    assert column(panel, "B") == [8, 16, 32]
    assert [row["current"] for row in panel.list.rows] == [False, False, True]
    first, *_, last = panel.list.rows
    assert {headings[i] for i in first["bold"]} >= {"B", "T", "time a sample"}
    assert last["bold"] == []
    assert "This plan is the fastest" in panel.finding.value
    assert column(panel, "time a sample")[-1] == 0
    assert min(column(panel, "time a sample")) == 0


def test_a_pin_survives_a_slider_and_what_is_tried_after_it(panel: WhatIfsPanel, explorer: Explorer) -> None:
    session = explorer.session
    panel.list.receive(None, {"kind": "pin", "key": "plan:2", "on": True}, None)
    assert [row["pinned"] for row in panel.list.rows] == [False, False, True]
    kept = session.store.state.history.entries[2].plan
    type_and_wait(explorer, num_microbatches=64)
    assert session.store.state.history.entries[2].plan is kept
    panel.list.receive(None, {"kind": "pin", "key": "plan:2", "on": False}, None)
    assert not any(row["pinned"] for row in panel.list.rows)
    panel.list.receive(None, {"kind": "pin", "key": "plan:99", "on": True}, None)
    panel.list.receive(None, {"kind": "pin", "key": "nonsense", "on": True}, None)
    assert not any(row["pinned"] for row in panel.list.rows)


def test_what_is_pinned_is_not_replaced_and_the_last_to_be_dropped() -> None:
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
    assert history.entries[1].plan is entries[2].plan, "the unpinned one between them went"
    assert history.entries[history.position].plan is entries[2].plan, "and what was on screen still is"
    assert not history.keep(0, on=False).entries[0].kept


def test_a_row_brings_its_plan_back_with_its_settings(panel: WhatIfsPanel, explorer: Explorer) -> None:
    explorer.bridge.selection = panel.list.rows[0]["key"]  # as a click on the row does
    assert explorer.settings.num_microbatches == 8
    assert [row["current"] for row in panel.list.rows] == [True, False, False]


def test_csv_has_every_plan_in_si_units(panel: WhatIfsPanel, explorer: Explorer) -> None:
    rows = list(csv.DictReader(io.StringIO(table_csv(panel.rows(explorer.session.store.state)))))
    assert [row["B"] for row in rows] == ["8", "16", "32"]
    plan = explorer.session.store.state.history.plans[1]
    assert float(rows[1]["iteration_seconds"]) == plan.predicted.iteration_seconds


def test_a_picture_is_not_offered_where_there_is_none(panel: WhatIfsPanel, explorer: Explorer, show_tab: Any) -> None:
    assert {"png", "svg"} <= set(explorer.toolbar.widget.disabled)
    show_tab("Layers")
    assert not {"png", "svg"} & set(explorer.toolbar.widget.disabled)


@pytest.mark.parametrize(("fraction", "text"), [(0.0, "±0"), (-0.31, "−31 %"), (0.05, "+5 %"), (1e-5, "±0")])
def test_a_change_has_its_sign(fraction: float, text: str) -> None:
    assert change_text(fraction) == text
