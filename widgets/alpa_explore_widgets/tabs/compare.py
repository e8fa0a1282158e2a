"""The Compare tab: the plan beside the pinned one, or beside another plan of the history."""

from collections.abc import Sequence

import ipywidgets as W

from alpa_explore import units
from alpa_explore.figures.style import Figure
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import differences
from alpa_explore.plans.report.tables import Row
from alpa_explore_widgets.elements.fields import choice_field
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel, note_figure

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

    def controls(self) -> list[W.Widget]:
        """The choice of the other plan."""
        hint = "The plan to compare with: pin one, or choose one of the history."
        self.other = choice_field("With", hint, {_DEFAULT: ""})
        self.watch(self.other)
        return [self.other]

    def follow(self, state: State) -> None:
        """Offer the pinned plan and the newest plans of the history."""
        newest = list(enumerate(state.history.plans))[-_MAX_OFFERED:]
        default = "the pinned plan" if state.pinned is not None else "the previous plan"
        choices = [[_DEFAULT, default, ""]] + [
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
        """The other plan."""
        return self._other(state)

    def draw(self, state: State, theme: str) -> Figure:
        """The figure of the module `name`; without another plan, a note on how to get one."""
        name, other = self._other(state)
        if other is None:
            return note_figure("There is only one plan: press Pin, then change something.", theme)
        figure: Figure = self._function("figure")(state.plan, other, theme=theme, other_name=name)
        return figure

    def rows(self, state: State) -> Sequence[Row]:
        """The table of the module `name`."""
        _, other = self._other(state)
        rows: Sequence[Row] = [] if other is None else self._function("table")(state.plan, other)
        return rows

    def _other(self, state: State) -> tuple[str, Plan | None]:
        """(name, plan) of the other plan; None in place of the plan if there is none."""
        plans, position = state.history.plans, state.history.position
        if self.other.value != _DEFAULT and int(self.other.value) < len(plans):
            return f"plan {int(self.other.value) + 1}", plans[int(self.other.value)]
        if state.pinned is not None:
            return "the pinned plan", state.pinned
        return "the previous plan", plans[position - 1] if position > 0 else None


def _label(position: int, plan: Plan, shown: Plan | None) -> str:
    """'3: 840 ms, B 64 → 128'."""
    changed = [] if shown is None else [f"{d.name} {d.old}" for d in differences(plan, shown)]
    listed = ", ".join(changed[:2]) + (", …" if len(changed) > 2 else "")
    return f"{position + 1}: {units.seconds(plan.predicted.iteration_seconds)}{', ' if listed else ''}{listed}"
