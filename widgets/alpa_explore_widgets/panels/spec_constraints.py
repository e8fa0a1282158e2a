"""Specs that are pinned or forbidden: the controls of the selected operator, and the list of all spec constraints."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import ipywidgets as W

from alpa_explore import units
from alpa_explore.figures.keys import read_key
from alpa_explore.plans.printable import printable
from alpa_explore.sharding.spec_constraint import ConstraintKind, SpecConstraint
from alpa_explore_widgets.elements.fields import Button, ChoiceField
from alpa_explore_widgets.session.session import Session

if TYPE_CHECKING:
    from alpa_explore.plans.records import PlanOperator
    from alpa_explore_widgets.session.state import State

_THEN = "Press Plan then."


class ConstraintControls:
    """The specs of the selected operator, with the cost of each once it is known, and buttons to pin or forbid one.

    Nothing is to be seen while no operator with an output is selected.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._operator: PlanOperator | None = None
        self.spec = ChoiceField(
            label="Its output",
            hint="A spec of the selected operator's output, with the seconds that its stage then "
            "takes more; Other specs finds them.",
            choices=[["", "", ""]],
            value="",
        )
        self.pin = _button(
            "Pin spec", f"Plan so that the output has this spec. {_THEN}", lambda: self._constraint(ConstraintKind.PIN)
        )
        self.forbid = _button(
            "Forbid spec",
            f"Plan so that it does not have this spec. {_THEN}",
            lambda: self._constraint(ConstraintKind.FORBID),
        )
        self.clear = _button(
            "Clear",
            f"Spec constraint nothing of this operator any more. {_THEN}",
            lambda: session.take_back(*self._own()),
        )
        self.more = _button("Other specs", "Find the others, and what each would cost the stage", session.ask_regrets)
        self.spec.observe(lambda _: self._enable(), "value")
        self.widget = W.HBox([self.spec, self.pin, self.forbid, self.clear, self.more])
        self.widget.add_class("alpa-spec constraint-controls")
        self.widget.layout.display = "none"

    def show(self, state: State) -> None:
        """Bring the controls to the selected operator."""
        plan, parts = state.plan, read_key(state.selection)
        operators = plan.stages[int(parts["stage"])].operators if plan is not None and "operator" in parts else ()
        before = self._operator
        self._operator = found = next((o for o in operators if o.name == parts["operator"] and o.output), None)
        self.widget.layout.display = None if found is not None else "none"
        if plan is None or found is None:
            return
        choices = [[found.output, f"{found.output}, as planned", ""]]
        known = state.regrets is not None and state.regrets.plan is plan and state.regrets.selection == state.selection
        if known and state.regrets is not None:
            least: dict[str, float] = {}
            for row in state.regrets.rows:
                least[row.output] = min(least.get(row.output, math.inf), row.extra_seconds)
            chosen = next((r.output for r in state.regrets.rows if r.chosen), "")
            choices = [[spec, _words(spec, extra, spec == chosen), ""] for spec, extra in least.items()]
        with self.spec.hold_sync():
            self.spec.label = f"Output of {printable(found.name)}"
            self.spec.choices = choices
            specs = [spec for spec, *_ in choices]
            if before is None or before.name != found.name or self.spec.value not in specs:
                self.spec.value = found.output
        self.more.layout.display = "none" if known or plan.details is None else None
        self._enable()

    def _own(self) -> tuple[SpecConstraint, ...]:
        """The spec constraints of the selected operator."""
        name = self._operator.name if self._operator is not None else None
        return tuple(w for w in self._session.store.state.settings.spec_constraints if w.operator == name)

    def _constraint(self, kind: ConstraintKind) -> None:
        if self._operator is not None:
            self._session.constraint(SpecConstraint(operator=self._operator.name, kind=kind, spec=self.spec.value))

    def _enable(self) -> None:
        own = self._own()
        there = {constraint.kind for constraint in own if constraint.spec == self.spec.value}
        self.pin.disabled, self.forbid.disabled = ConstraintKind.PIN in there, ConstraintKind.FORBID in there
        self.clear.disabled = not own


class ConstraintList:
    """All spec constraints, each a button that takes it back; nothing where there are none."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._shown: tuple[SpecConstraint, ...] = ()
        self.heading = W.HTML('<p class="alpa-question">Spec constraints</p>')
        self.widget = W.VBox([])
        self.widget.add_class("alpa-spec constraints")
        self.widget.layout.display = "none"

    def show(self, state: State) -> None:
        """Bring the list to the settings."""
        spec_constraints = state.settings.spec_constraints
        if spec_constraints == self._shown:
            return
        self._shown, before = spec_constraints, self.widget.children[1:]
        self.widget.children = [self.heading, *map(self._button, spec_constraints)] if spec_constraints else []
        self.widget.layout.display = None if spec_constraints else "none"
        for button in before:
            button.close()

    def _button(self, constraint: SpecConstraint) -> Button:
        words = printable(str(constraint))
        return _button(f"✕ {words}", f"Take back: {words}. {_THEN}", lambda: self._session.take_back(constraint))


def _button(text: str, hint: str, press: Callable[[], None]) -> Button:
    found = Button(press, description=text, hint=hint)
    found.add_class("alpa-plain")
    return found


def _words(spec: str, extra_seconds: float, chosen: bool) -> str:
    if extra_seconds == math.inf:
        return f"{spec}, cannot be had"
    extra = f"+{units.seconds(extra_seconds)}" if extra_seconds > 0 else "the best"
    return f"{spec}, {extra}{', as planned' if chosen else ''}"
