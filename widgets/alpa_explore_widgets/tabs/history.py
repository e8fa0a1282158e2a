"""The tabs about the plans of the history: Search, What-ifs (a table of all), and Compare with another one."""

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as W
import traitlets

from alpa_explore import units
from alpa_explore.figures.comparisons.search import comparable
from alpa_explore.figures.keys import key, read_key
from alpa_explore.figures.style import Figure
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import change_text, differences, tried_table
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.text import cell, heading
from alpa_explore.units import SMALL
from alpa_explore_widgets.elements.fields import CONTROLS, choice_field, plain_button
from alpa_explore_widgets.elements.page_widget import PageWidget, module_with_helpers, set_shown
from alpa_explore_widgets.panels.aside import asked, baselines_html, levers_html, planned_gain
from alpa_explore_widgets.panels.verdict import best_html, layouts_beside
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel, figure_function
from alpa_explore_widgets.tab_kinds.panel import Panel

_DEFAULT = ""
"""The choice of the pinned plan, or of the previous one if none is pinned."""
_MAX_OFFERED = 20
"""Plans of the history that are offered, the newest ones; set by hand."""


class ComparePanel(PlanPanel):
    """How do two plans differ, and what is the effect?"""

    title, name = "Compare", "compare"
    made_ahead = True
    room = "comparisons"
    question = "How does this plan differ from another one, and what is the effect?"

    def __init__(self, price_layouts: Callable[[], None]) -> None:
        self._price_layouts = price_layouts
        super().__init__()

    def controls(self) -> list[W.Widget]:
        """The choice of the other plan; where there is none, the button that finds layouts to compare with."""
        hint = "The plan to compare with: pin one, or choose one of the history."
        self.other = choice_field("With", hint, {_DEFAULT: ""})
        self.price = plain_button(**CONTROLS["layouts"]["price"], press=self._price_layouts)
        self.watch(self.other)
        return [self.other, self.price]

    def follow(self, state: State) -> None:
        """Offer the pinned plan and the newest plans of the history."""
        newest = list(enumerate(state.history.plans))[-_MAX_OFFERED:]
        alone = self._other(state)[1] is None
        set_shown(self.other, on=not alone)
        set_shown(self.price, on=alone and layouts_beside(state) is None)
        self.price.disabled = state.layouts is not None and state.layouts.running
        choices = [[_DEFAULT, self._default(state)[0], ""]] + [
            [str(position), _label(position, plan, state.plan), "history"]
            for position, plan in reversed(newest)
            if plan is not state.plan
        ]
        if self.other.value not in [value for value, *_ in choices]:
            with self.quietly(self.other):
                self.other.value = _DEFAULT
        if choices != self.other.choices:
            self.other.choices = choices

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The other plan; without one what can be compared, and what is being planned."""
        found = self._other(state)
        return found if found[1] is not None else (asked(state), state.no_plans, layouts_beside(state))

    def instead(self, state: State) -> tuple[str, str] | None:
        """Without another plan, what can be planned beside it."""
        if self._other(state)[1] is not None:
            return None
        layouts, plan = layouts_beside(state), self.plan_of(state)
        best = "" if layouts is None else best_html(layouts, plan, aside=True)
        said = "Only this plan is known. Choose what to plan beside it, or press Pin, then change something."
        if what := asked(state):
            said = f"Planning {what}; the comparison follows: time, memory, stages, and how each operator is cut."
        heading = '<div class="alpa-why"><h4>Uniform layouts, the best that fit</h4></div>' if best else ""
        return said, f'{heading}{best}<div class="alpa-why">{baselines_html(state)}</div>'

    def draw(self, state: State, theme: str) -> Figure:
        """The figure of the module `name`."""
        name, other = self._other(state)
        figure: Figure = self._function("figure")(state.plan, other, theme=theme, other_name=name)
        return figure

    def rows(self, state: State) -> Sequence[Row]:
        """The table of the module `name`."""
        _, other = self._other(state)
        rows: Sequence[Row] = [] if other is None else self._function("table")(state.plan, other)
        return rows

    def _other(self, state: State) -> tuple[str, Plan | None]:
        """(name, plan) of the other plan; None in place of the plan if there is none."""
        plans = state.history.plans
        if self.other.value != _DEFAULT and int(self.other.value) < len(plans):
            return f"plan {int(self.other.value) + 1}", plans[int(self.other.value)]
        return self._default(state)

    def _default(self, state: State) -> tuple[str, Plan | None]:
        """The pinned plan, else that before, else the newest one."""
        plans, position = state.history.plans, state.history.position
        if state.pinned is not None:
            return "the pinned plan", state.pinned
        if position > 0:
            return "the previous plan", plans[position - 1]
        return "the newest plan", plans[-1] if len(plans) > 1 else None


def _label(position: int, plan: Plan, shown: Plan | None) -> str:
    """'3: 840 ms, B 64 → 128'."""
    changed = [] if shown is None else [f"{d.name} {d.old}" for d in differences(plan, shown)]
    listed = ", ".join(changed[:2]) + (", …" if len(changed) > 2 else "")
    return f"{position + 1}: {units.seconds(plan.predicted.iteration_seconds)}{', ' if listed else ''}{listed}"


class SearchPanel(PlanPanel):
    """Which of the plans so far is fast, and which needs little memory?"""

    title, name, room = "Search", "search", "comparisons"
    made_ahead = True
    question = "How fast are the plans so far, and how much memory do they need? A click on one shows it."

    def __init__(self, try_settings: Callable[[], None], try_baselines: Callable[[], None]) -> None:
        self._try_settings, self._try_baselines = try_settings, try_baselines
        super().__init__()

    def controls(self) -> list[W.Widget]:
        """The buttons."""
        return [
            plain_button("Try settings", "Plan each change of Why that needs no other hardware", self._try_settings),
            plain_button(
                "Try baselines", "Data parallel, ZeRO-3, Megatron, … on the same model and cluster", self._try_baselines
            ),
        ]

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The plans of the history, and what has no plan."""
        return (state.history.entries, state.no_plans)

    def arguments(self, state: State) -> dict[str, Any]:
        """The plans of the history, and what has no plan for the model on screen."""
        model = self.plan_of(state).model.name
        failed = tuple(attempt for attempt in state.no_plans if attempt.model == model)
        return {"tried": state.history.plans, "failed": failed}

    def draw(self, state: State, theme: str) -> Figure:
        """The plans; of a single one what the planner did for it."""
        if len(comparable(self.plan_of(state), state.history.plans)) > 1 or self.arguments(state)["failed"]:
            return super().draw(state, theme)
        figure: Figure = figure_function(self.room, "effort", "figure")(state.plan, theme=theme)
        return figure.update_layout(uirevision="effort")


_HEADINGS = {
    "plan_number": "#",
    "time_fraction": "time a sample",
    "samples_a_second": "samples/s",
    "mfu_fraction": "MFU",
}
_IN_FILES_ONLY = ("samples_a_second", "peak_bytes")
"""Columns of the CSV file that the page leaves out: others say the same."""
_HINTS = {
    "plan_number": "The order in which the plans were made",
    "iteration_seconds": "Seconds of an iteration",
    "time_fraction": "Against the plan on screen; less is faster",
    "memory_fraction": "Of the memory of a device, at the peak",
}


class SortableTable(PageWidget):
    """A table that is sorted by a click on a heading, with rows that can be pinned to its top and chosen by a click.

    Sorting is done on the page; a pin calls `pin(key, on)`. A row that is chosen becomes the selection.
    """

    _esm = module_with_helpers("sortable_table.js")

    label = traitlets.Unicode().tag(sync=True)
    """Accessible name."""
    columns = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    """[heading, 'number' or 'text', tooltip] of each."""
    rows = traitlets.List(traitlets.Dict()).tag(sync=True)
    """Of each row: `key`; `cells`, its texts; `values`, numbers or texts by which it is sorted; `bold`, indices of the
    cells that differ from the current row; `pinned`; `current`."""
    sorted_by = traitlets.List(traitlets.Int()).tag(sync=True)
    """[index of the column, 1 for ascending or −1]; empty for the order of `rows`."""

    def __init__(self, pin: Callable[[str, bool], None], **traits: Any) -> None:
        super().__init__(**traits)
        self._pin = pin
        self.on_msg(self.receive)

    def receive(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        """A row was pinned on the page, or is no longer."""
        if content.get("kind") == "pin":
            self._pin(str(content.get("key", "")), bool(content.get("on")))


class WhatIfsPanel(Panel):
    """Which plans were tried, in what do they differ, and which is best?"""

    title, waits = "What-ifs", False
    question = "Which plans were tried, and in what do they differ? A click on one shows it; headings sort."

    def __init__(self, session: Session) -> None:
        self._session = session
        self.list, self.untried = SortableTable(self._pinned, label="Plans of this explorer"), W.HTML()
        super().__init__()

    def contents(self) -> list[W.Widget]:
        """The table, and below it the levers that have no plan yet."""
        return [self.list, self.untried]

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The plans of the history, what has no plan, and what is being planned."""
        return (state.history.entries, state.no_plans, asked(state))

    def update(self, state: State, theme: str, *, as_table: bool) -> None:
        """Fill the table; settings that are equal in all plans have no column."""
        rows, entries = self.rows(state), state.history.entries
        shown = next((row for row, entry in zip(rows, entries, strict=True) if entry.plan is state.plan), None)
        names = [name for name in rows[0] if name not in _IN_FILES_ONLY] if rows else []
        columns = {name: _sortable([row[name] for row in rows]) for name in names}
        numbers = [all(isinstance(row[n], int | float) for row in rows) for n in names]
        with self.list.hold_sync():
            self.list.columns = [
                [_HEADINGS.get(n, heading(n)), "number" if number else "text", _HINTS.get(n, "Click to sort")]
                for n, number in zip(names, numbers, strict=True)
            ]
            self.list.rows = [
                {
                    "key": key(plan=row["plan_number"]),
                    "cells": [_text(n, row[n]) for n in names],
                    "values": [columns[n][place] for n in names],
                    "bold": [i for i, n in enumerate(names) if shown is not None and _differs(n, row, shown)],
                    "pinned": entries[row["plan_number"]].kept,
                    "current": row is shown,
                }
                for place, row in enumerate(rows)
            ]
        self.finding.value = f'<p class="alpa-finding" tabindex="0">{_finding(state, rows)}</p>'
        untried = [lever for lever in self._session.levers() if planned_gain(state, lever) is None]
        self.untried.value = f'<div class="alpa-why">{levers_html(state, untried, {})}</div>'

    def rows(self, state: State) -> Sequence[Row]:
        """A row for each plan of the history."""
        return tried_table(self.plan_of(state), state.history.plans)

    def _pinned(self, chosen: str, on: bool) -> None:
        number = read_key(chosen).get("plan", "")
        if number.isdecimal():
            self._session.keep(int(number), on=on)


def _text(name: str, value: Any) -> str:
    if name == "plan_number":
        return str(value + 1)
    if name == "time_fraction":
        return change_text(value)
    return cell(name, value)


def _sortable(column: list[Any]) -> list[Any]:
    """Values by which rows are sorted: counts in words, '1,024', as numbers."""
    try:
        return [float(value.replace(",", "")) if isinstance(value, str) else value for value in column]
    except ValueError:
        return column


def _differs(name: str, row: Row, shown: Row) -> bool:
    """Whether a cell says something else than that of the plan on screen; its number always does."""
    return name != "plan_number" and _text(name, row[name]) != _text(name, shown[name])


def _finding(state: State, rows: Sequence[Row]) -> str:
    if len(rows) < 2:
        return "Only this plan has been made: move a control, or try a change below."
    best = min(rows, key=lambda row: float(row["time_fraction"]))
    gain, fastest = float(best["time_fraction"]), "This plan is the fastest."
    if gain <= -SMALL:
        fastest = f"Plan {best['plan_number'] + 1} is the fastest: {change_text(gain)} time a sample."
    failed = f" {len(state.no_plans)} more have no plan: see Search." if state.no_plans else ""
    return f"{len(rows)} plans; what differs from this one is bold. {fastest}{failed}"
