"""The Compare tab: the plan beside another one, the pinned one unless another of those that were tried is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ipywidgets as W

from alpa_explore import units
from alpa_explore.plans.report.differences import differences
from alpa_explore_widgets.elements.fields import ChoiceField
from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel, note_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan
    from alpa_explore.plans.report.tables import Row
    from alpa_explore_widgets.session.state import State

_USUAL = ""
_OFFERED = 20
"""The newest of those that were tried."""


class ComparePanel(PlanPanel):
    """How do two plans differ, and what comes of it?"""

    title, name = "Compare", "compare"
    room = "comparisons"
    question = "How does this plan differ from another one, and what comes of it?"

    def controls(self) -> list[W.Widget]:
        """The other plan."""
        self.other = ChoiceField(
            label="With",
            hint="The plan that this one is compared with: pin one, or choose one that was tried.",
            choices=[[_USUAL, "", ""]],
            value=_USUAL,
        )
        self.other.observe(self._chosen, "value")
        return [self.other]

    def follow(self, state: State) -> None:
        """The choices are the pinned plan and those that were tried."""
        tried = list(enumerate(state.history.plans))[-_OFFERED:]
        usual = "the pinned plan" if state.pinned is not None else "the plan before"
        choices = [[_USUAL, usual, ""]] + [
            [str(k), _label(k, one, state.plan), "tried"] for k, one in reversed(tried) if one is not state.plan
        ]
        if self.other.value not in [value for value, *_ in choices]:
            self.other.unobserve(self._chosen, "value")  # it is being drawn already
            self.other.value = _USUAL
            self.other.observe(self._chosen, "value")
        if choices != self.other.choices:
            self.other.choices = choices

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The other plan."""
        return self._other(state)

    def draw(self, state: State, theme: str) -> go.Figure:
        """See the module; without another plan nothing but how to get one."""
        name, other = self._other(state)
        if other is None:
            return note_figure("There is one plan alone: press Pin, then change something.", theme)
        figure: go.Figure = self._of("figure")(state.plan, other, theme, other_name=name)
        return figure

    def rows(self, state: State) -> Sequence[Row]:
        """See the module."""
        _, other = self._other(state)
        found: Sequence[Row] = [] if other is None else self._of("table")(state.plan, other)
        return found

    def _other(self, state: State) -> tuple[str, Plan | None]:
        """(its name, the plan); None where there is none."""
        plans, place = state.history.plans, state.history.place
        if self.other.value != _USUAL and int(self.other.value) < len(plans):
            return f"plan {int(self.other.value) + 1}", plans[int(self.other.value)]
        if state.pinned is not None:
            return "the pinned plan", state.pinned
        return "the plan before", plans[place - 1] if place > 0 else None

    def _chosen(self, _change: dict[str, Any]) -> None:
        self.redraw()


def _label(place: int, plan: Plan, shown: Plan | None) -> str:
    """'3: 840 ms, B 64 → 128'."""
    apart = [] if shown is None else [f"{d.name} {d.old}" for d in differences(plan, shown)]
    words = ", ".join(apart[:2]) + (", …" if len(apart) > 2 else "")
    return f"{place + 1}: {units.seconds(plan.predicted.iteration_seconds)}{', ' if words else ''}{words}"
