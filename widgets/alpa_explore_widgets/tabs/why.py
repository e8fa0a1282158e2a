"""The Why tab, with single changes that are planned when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ipywidgets as W

from alpa_explore import units
from alpa_explore_widgets.elements.lists import AnswerList
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.tab_kinds.figure_panel import TriedPanel

if TYPE_CHECKING:
    from alpa_explore_widgets.session.hardware import HardwareChange
    from alpa_explore_widgets.session.state import State

_SMALL = 5e-4
"""Changes below this share are shown as none."""


class WhyPanel(TriedPanel):
    """Where does the time go, what limits the plan, and what would a single change do?"""

    title, name = "Why", "why"
    made_ahead = True
    question = "Where does the time go, what limits the plan, and what would one change do?"

    def __init__(self, session: Session) -> None:
        self._session = session
        super().__init__()

    def controls(self) -> list[W.Widget]:
        """The button that plans with other settings."""
        neighbours = (
            "Plan with another δ, other numbers of layers, and the other choice of recomputation; this plan stays"
        )
        return [self.button("Try neighbours", neighbours, self._session.try_neighbours)]

    def below(self) -> list[W.Widget]:
        """Changes of the hardware with the time of a sample, where it is known; a press makes one the settings."""
        self.changes = AnswerList(self._session.choose_hardware, label="Time of a sample with other hardware")
        hint = "Plan for faster links, more memory, more nodes and other devices; this plan stays. Cancel stops it."
        self.plan_all = self.button("Answer all", hint, self._session.try_hardware)
        line = W.HBox([self.plan_all, self.changes])
        line.add_class("alpa-answers-line")
        return [line]

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The plans of the history, and what has no plan."""
        return (*super().depends_on(state), state.no_plans)

    def update(self, state: State, theme: str, *, as_table: bool) -> None:
        """The figure or the table, and then the answers, whose bounds take longer: the page draws meanwhile."""
        super().update(state, theme, as_table=as_table)
        changes = self._session.hardware_changes()
        self.changes.items = [[c.name, *answer(state, c), tooltip(state, c)] for c in changes]
        self.plan_all.disabled = all(planned_gain(state, change) is not None for change in changes)


def planned_gain(state: State, change: HardwareChange) -> float | None:
    """Share of the time of a sample that a change saves, by the plan that was made with it; None without one."""
    plan = state.plan
    made = next((entry.plan for entry in state.history.entries if entry.settings == change.settings), None)
    return None if made is None or plan is None else 1.0 - plan.samples_per_second / made.samples_per_second


def tooltip(state: State, change: HardwareChange) -> str:
    """What is changed, what a press does, and what is assumed where the answer is only a bound."""
    assumed = change.why_most if planned_gain(state, change) is None and change.most is not None else ""
    return f"{change.hint}. Press to plan with it. {f'At most: {assumed}' if assumed else ''}".strip()


def answer(state: State, change: HardwareChange) -> tuple[str, str]:
    """(text, tone) of the answer: the change of the time of a sample, why there is no plan, or what is known before."""
    gain = planned_gain(state, change)
    if gain is not None:
        if abs(gain) < _SMALL:
            return "±0", ""
        return (f"−{units.percent(gain)}", "better") if gain > 0 else (f"+{units.percent(-gain)}", "worse")
    failed = next((attempt for attempt in state.no_plans if attempt.name == change.name), None)
    if failed is not None:
        return f"no plan: {failed.reason}", "worse"
    if change.most is None:
        return "not known before it is planned", "pending"
    return (f"at most −{units.percent(change.most)}" if change.most >= _SMALL else "±0 for this plan"), "pending"
