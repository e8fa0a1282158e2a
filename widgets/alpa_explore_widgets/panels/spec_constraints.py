"""Spec constraints: controls to pin or forbid a spec of the selected operator, and the list of all constraints."""

import math
from dataclasses import fields
from itertools import starmap
from typing import Any

import ipywidgets as W

from alpa_explore import units
from alpa_explore.figures.keys import read_key
from alpa_explore.plans.records import PlanOperator
from alpa_explore.sharding.spec_constraint import ConstraintKind, SpecConstraint
from alpa_explore.units import printable
from alpa_explore_widgets.elements.fields import CONTROLS, Button, ChoiceField, plain_button
from alpa_explore_widgets.elements.page_widget import box
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.settings import Settings
from alpa_explore_widgets.session.state import Regrets, State

_THEN_PLAN = "Then press Plan."


class ConstraintControls:
    """The output specs of the selected operator, with their costs once they are computed, and buttons to pin or forbid
    one. Hidden unless an operator with an output is selected."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._operator: PlanOperator | None = None
        said = CONTROLS["constraints"]
        self.spec = ChoiceField(**said["spec"], choices=[["", "", ""]], value="")
        self.pin = plain_button(**said["pin"], press=lambda: self._add_constraint(ConstraintKind.PIN))
        self.forbid = plain_button(**said["forbid"], press=lambda: self._add_constraint(ConstraintKind.FORBID))
        self.clear = plain_button(
            **said["clear"], press=lambda: session.remove_constraints(*self._operator_constraints())
        )
        self.more = plain_button(**said["more"], press=session.compute_regrets)
        self.spec.observe(lambda _: self._enable(), "value")
        self.widget = box("alpa-constraint-controls", self.spec, self.pin, self.forbid, self.clear, self.more)
        self.widget.layout.display = "none"

    def show(self, state: State) -> None:
        """Update the controls for the selected operator."""
        plan, parts = state.plan, read_key(state.selection)
        operators = plan.stages[int(parts["stage"])].operators if plan is not None and "operator" in parts else ()
        previous = self._operator
        operator = next((o for o in operators if o.name == parts["operator"] and o.output), None)
        self._operator = operator
        self.widget.layout.display = None if operator is not None else "none"
        if plan is None or operator is None:
            return
        regrets = state.regrets
        if regrets is not None and (regrets.plan is not plan or regrets.selection != state.selection):
            regrets = None  # of another plan or operator
        planned = [[operator.output, f"{operator.output}: in the plan", ""]]
        choices = planned if regrets is None else _spec_choices(regrets)
        with self.spec.hold_sync():
            self.spec.label = f"Output of {printable(operator.name)}"
            self.spec.choices = choices
            specs = [spec for spec, *_ in choices]
            if previous is None or previous.name != operator.name or self.spec.value not in specs:
                self.spec.value = operator.output
        self.more.layout.display = "none" if regrets is not None or plan.details is None else None
        self._enable()

    def _operator_constraints(self) -> tuple[SpecConstraint, ...]:
        """The spec constraints of the selected operator."""
        name = self._operator.name if self._operator is not None else None
        return tuple(c for c in self._session.store.state.settings.spec_constraints if c.operator == name)

    def _add_constraint(self, kind: ConstraintKind) -> None:
        if self._operator is not None:
            self._session.add_constraint(SpecConstraint(operator=self._operator.name, kind=kind, spec=self.spec.value))

    def _enable(self) -> None:
        constraints = self._operator_constraints()
        kinds = {constraint.kind for constraint in constraints if constraint.spec == self.spec.value}
        self.pin.disabled, self.forbid.disabled = ConstraintKind.PIN in kinds, ConstraintKind.FORBID in kinds
        self.clear.disabled = not constraints


class ConstraintList:
    """All spec constraints, each a button that removes it; hidden if there are none."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._shown: tuple[tuple[SpecConstraint, ...], dict[str, str]] = ((), {})
        self.heading = W.HTML('<p class="alpa-question">Constraints</p>')
        self.widget = box("alpa-constraints", kind=W.VBox)
        self.widget.layout.display = "none"

    def show(self, state: State) -> None:
        """Update the list."""
        spec_constraints, of_stages = state.settings.spec_constraints, state.settings.stage_constraints
        if (spec_constraints, of_stages) == self._shown:
            return
        self._shown, old_buttons = (spec_constraints, of_stages), self.widget.children[1:]
        buttons = [*map(self._button, spec_constraints), *starmap(self._stage_button, of_stages.items())]
        self.widget.children = [self.heading, *buttons] if buttons else []
        self.widget.layout.display = None if buttons else "none"
        for button in old_buttons:
            button.close()

    def _stage_button(self, setting: str, words: str) -> Button:
        none: Any = next(field.default for field in fields(Settings) if field.name == setting)
        text = printable(words)
        return plain_button(f"✕ {text}", f"Remove: {text}. {_THEN_PLAN}", lambda: self._session.set(**{setting: none}))

    def _button(self, constraint: SpecConstraint) -> Button:
        text = printable(str(constraint))
        return plain_button(
            f"✕ {text}", f"Remove: {text}. {_THEN_PLAN}", lambda: self._session.remove_constraints(constraint)
        )


def _spec_choices(regrets: Regrets) -> list[list[str]]:
    """[spec, text, group] of each output spec, with the least cost of a strategy that gives it."""
    least: dict[str, float] = {}
    for row in regrets.rows:
        least[row.output] = min(least.get(row.output, math.inf), row.extra_seconds)
    chosen = next((row.output for row in regrets.rows if row.chosen), "")
    return [[spec, _spec_text(spec, extra, spec == chosen), ""] for spec, extra in least.items()]


def _spec_text(spec: str, extra_seconds: float, chosen: bool) -> str:
    if extra_seconds == math.inf:
        return f"{spec}: not possible"
    extra = f"+{units.seconds(extra_seconds)}" if extra_seconds > 0 else "fastest"
    return f"{spec}: {extra}{', in the plan' if chosen else ''}"
