"""The Why tab: every cost of T, and what changes bring, as one list: levers that can be tried, and all plans made."""

from collections.abc import Mapping, Sequence
from html import escape

import ipywidgets as W

from alpa_explore import units
from alpa_explore.figures.keys import key
from alpa_explore.figures.marks import time_looks
from alpa_explore.figures.style import in_theme
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import change_text
from alpa_explore.plans.report.tables import Row
from alpa_explore.questions.explain import WAIT, mean_parts, time_parts
from alpa_explore.units import SMALL
from alpa_explore_widgets.elements.fields import plain_button
from alpa_explore_widgets.elements.tables import table_html
from alpa_explore_widgets.panels.aside import asked, other_plans, planned_gain, ranked_html
from alpa_explore_widgets.session.levers import Lever
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.panel import Panel

_STAGES = 8
"""Stages up to which each has a bar of its own."""
_NAMED = 1e-3
"""The least share of T that has a place in the legend of its own."""


class WhyPanel(Panel):
    """Where does the time go, what limits the plan, and what would a single change do?"""

    title, waits = "Why", False
    question = "Where does the time go, and what does a change do? Each answer is a plan, which opens and can be kept."

    def __init__(self, session: Session) -> None:
        self._session = session
        self.list = W.HTML()
        super().__init__()

    def controls(self) -> list[W.Widget]:
        """The button that asks for all answers."""
        hint = "Plan every change below, the free and the most promising ones first; this plan stays. Cancel stops it."
        self.plan_all = plain_button("Answer all", hint, self._session.try_levers)
        return [self.plan_all]

    def contents(self) -> list[W.Widget]:
        """The list, or the table in its place."""
        return [self.list]

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The plans of the history, what has no plan, and what is being planned."""
        return (state.history.entries, state.no_plans, asked(state))

    def update(self, state: State, theme: str, *, as_table: bool) -> None:
        """Fill the list."""
        plan, levers = self.plan_of(state), self._session.levers()
        gains = {lever.name: gain for lever in levers if (gain := planned_gain(state, lever)) is not None}
        self.plan_all.disabled = len(gains) == len(levers)
        self.finding.value = f'<p class="alpa-finding" tabindex="0">{escape(_finding(state, levers, gains))}</p>'
        if as_table:
            self.list.value = table_html(self.rows(state), plan)
        else:
            self.list.value = (
                f'<div class="alpa-why">{costs_html(plan, theme)}{ranked_html(state, levers, gains)}</div>'
            )

    def rows(self, state: State) -> Sequence[Row]:
        """The parts of the time of each stage, then each lever, asked or not, then the other plans."""
        from alpa_explore.figures.comparisons.why import parts_table  # imports plotly

        plan, levers, history = self.plan_of(state), self._session.levers(), state.history
        kinds = [("free" if lever.free else "bought", lever.name, history.place(lever.settings)) for lever in levers]
        kinds += [("yours", name, number) for number, name, _ in other_plans(state, levers)]
        rows = [row | {"plan_number": None} for row in parts_table(plan)]
        for about, what, number in kinds:
            row = dict.fromkeys(rows[0]) | {"about": about, "what": what, "how": "not asked yet"}
            if number >= 0:
                found = history.plans[number]
                row["iteration_seconds"] = found.predicted.iteration_seconds
                row["share_fraction"] = 1.0 - plan.samples_per_second / found.samples_per_second
                row |= {"how": "planned; share of the time of a sample that is saved", "plan_number": number}
            rows.append(row)
        return rows


def costs_html(plan: Plan, theme: str) -> str:
    """A bar of the parts of T of all devices and its legend, the largest first; below it a bar for each stage."""
    times, total = time_parts(plan), plan.predicted.iteration_seconds
    mean = dict(sorted(mean_parts(times).items(), key=lambda part: -part[1]))
    looks = {name: in_theme(color, theme) for name, (color, _) in time_looks(mean).items()}
    legend = "".join(
        f"<span>{_swatch(name, looks)}{escape(name)} <b>{units.seconds(seconds)}</b> "
        f"{units.percent(seconds / total)}</span>"
        for name, seconds in mean.items()
        if seconds >= _NAMED * total
    )
    if rest := {name: seconds for name, seconds in mean.items() if seconds < _NAMED * total}:
        listed = "; ".join(f"{name} {units.seconds(seconds)}" for name, seconds in rest.items())
        legend += f'<span title="{escape(listed)}">all else <b>{units.seconds(sum(rest.values()))}</b></span>'
    shown = times if 1 < len(times) <= _STAGES else ()
    stages = "".join(_stage(time.stage, dict(time.parts), looks, total) for time in shown)
    head = f"<h4>{units.seconds(total)} of an iteration, on the average device</h4>"
    return f'{head}{_stack(mean, looks, total)}<p class="alpa-legend">{legend}</p>{stages}'


def _stage(stage: int, parts: Mapping[str, float], looks: Mapping[str, str], total: float) -> str:
    hint = "; ".join(f"{name} {units.seconds(seconds)}" for name, seconds in parts.items())
    return (
        f'<button type="button" class="alpa-of-stage" data-alpa-key="{key(stage=stage)}" title="{escape(hint)}">'
        f"<span>stage {stage}</span>{_stack(parts, looks, total)}</button>"
    )


def _stack(parts: Mapping[str, float], looks: Mapping[str, str], total: float) -> str:
    pieces = "".join(
        f'<i title="{escape(name)} {units.seconds(parts[name])}" class="{"alpa-idle" if name == WAIT else ""}" '
        f'style="width:{100 * parts[name] / total:.3f}%{"" if name == WAIT else f";background:{color}"}"></i>'
        for name, color in looks.items()
        if parts.get(name)
    )
    return f'<span class="alpa-stack">{pieces}</span>'


def _swatch(name: str, looks: Mapping[str, str]) -> str:
    return '<i class="alpa-idle"></i>' if name == WAIT else f'<i style="background:{looks[name]}"></i>'


def _finding(state: State, levers: Sequence[Lever], gains: Mapping[str, float]) -> str:
    """What takes most of T, the best answer so far, and the fastest of all plans."""
    plan = state.plan
    assert plan is not None, "shown before there was a plan"
    parts = sorted(mean_parts(time_parts(plan)).items(), key=lambda part: -part[1])
    total = plan.predicted.iteration_seconds
    words = " and ".join(f"{name} {units.percent(s / total)}" for name, s in parts[:2] if s >= SMALL * total)
    said, free = [f"Time: {words}."], {lever.name for lever in levers if lever.free}
    best = max((name for name in gains if name in free), key=lambda name: gains[name], default=None)
    if best is None:
        said.append("No free change was asked yet.")
    elif gains[best] < SMALL:
        said.append("No free change that was asked saves time.")
    else:
        said.append(f"Best free change: {best}, {change_text(-gains[best])}.")
    yours = [(gain, number) for number, _, gain in other_plans(state, levers)]
    if yours and max(yours)[0] >= max(SMALL, *gains.values(), 0.0):
        gain, number = max(yours)
        said.append(f"Plan {number + 1} is the fastest of {len(state.history.entries)}: {change_text(-gain)}.")
    return " ".join(said)
