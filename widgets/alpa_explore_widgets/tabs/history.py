"""The tabs about the plans of the history: Search, and Compare with another one."""

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as W

from alpa_explore import units
from alpa_explore.figures.comparisons.search import comparable
from alpa_explore.figures.style import Figure
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import differences
from alpa_explore.plans.report.tables import Row
from alpa_explore_widgets.elements.fields import CONTROLS, choice_field, plain_button
from alpa_explore_widgets.elements.page_widget import set_shown
from alpa_explore_widgets.panels.aside import asked, baselines_html
from alpa_explore_widgets.panels.verdict import best_html, layouts_beside
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel, figure_function

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
        """The pinned plan, else the last one before that differs, else the fastest that does."""
        before = state.history.plans[: max(state.history.position, 0)]
        if state.pinned is not None:
            return "the pinned plan", state.pinned
        if last := next((plan for plan in reversed(before) if _differ(plan, self.plan_of(state))), None):
            return "the previous plan" if last is before[-1] else "an earlier plan", last
        others = [plan for plan in state.history.plans if _differ(plan, self.plan_of(state))]
        return "the fastest other plan", max(others, key=lambda plan: plan.samples_per_second, default=None)


def _differ(plan: Plan, shown: Plan) -> bool:
    """Whether there is anything to compare: a plan that was made again is the same."""
    return plan.predicted != shown.predicted or bool(differences(plan, shown))


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
