"""Spec constraints in the explorer: they take effect with Plan, and are part of the history, the code and the plan."""

from collections.abc import Callable
from typing import Any

import pytest
from alpa_explore_widgets import explore
from alpa_explore_widgets.explorer import Explorer
from alpa_explore_widgets.export import plan_code
from alpa_explore_widgets.panels.actions import changed_settings
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.settings import Settings, settings_of

import alpa_explore as ax
from alpa_explore.figures.keys import key
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanOperator
from alpa_explore.sharding.spec_constraint import ConstraintKind, SpecConstraint, constrained, constraints_of
from tests.waiting import LIMIT_SECONDS


@pytest.fixture(scope="module")
def planned() -> Plan:
    return ax.plan("mlp-tiny", "1x4:v100", num_microbatches=4, num_layers=1, scheduler="serial")


@pytest.fixture
def shown(planned: Plan, drawn: list[Any]) -> Explorer:
    explorer = explore(planned)
    explorer.tabs.selected = [p.title for p in explorer.panels].index("Sharding")
    return explorer


def product(plan: Plan) -> PlanOperator:
    return next(o for o in plan.stages[0].operators if o.phase == "forward" and o.flops)


def controls(explorer: Explorer) -> Any:
    return explorer.panels[explorer.tabs.selected].spec_constraints  # type: ignore[attr-defined]  # a FigurePanel; this one is a ShardingPanel


def test_a_spec_is_pinned_planned_undone_and_removed(shown: Explorer, planned: Plan) -> None:
    operator, panel = product(planned), controls(shown)
    assert panel.widget.layout.display == "none"
    shown.bridge.selection = key(stage=0, layer=operator.layer, operator=operator.name)
    assert panel.widget.layout.display is None
    assert (panel.spec.label, panel.spec.value) == (f"Output of {operator.name}", operator.output)
    panel.more.click()
    assert shown.session.wait(LIMIT_SECONDS)
    listed = {spec: text for spec, text, _ in panel.spec.choices}
    assert set(listed) == {r.output for r in ax.regrets(planned, 0, operator.name)}
    assert listed[operator.output].endswith("in the plan")
    assert panel.spec.value == operator.output
    assert panel.more.layout.display == "none"
    other = next(spec for spec, text in listed.items() if "+" in text.removeprefix(spec))
    panel.spec.value = other
    panel.pin.click()
    state = shown.session.store.state
    assert state.settings.spec_constraints == constraints_of({operator.name: other})
    assert state.plan is planned, "it waits for Plan"
    assert state.out_of_date
    assert f"spec constraint: {operator.name} is {other}" in shown.plan_button.progress.value
    assert [b.description for b in shown.spec_constraints.widget.children[1:]] == [f"✕ {operator.name} is {other}"]
    assert (panel.pin.disabled, panel.forbid.disabled, panel.clear.disabled) == (True, False, False)
    shown.session.pin()
    shown.plan_button.plan.click()
    plan = shown.wait(LIMIT_SECONDS)
    assert plan is not None
    assert shown.session.store.state.fault is None
    assert product(plan).output == other
    assert plan.predicted.iteration_seconds > planned.predicted.iteration_seconds
    assert "alpa-worse" in shown.verdict.head.value
    shown.session.undo()
    assert (shown.plan, shown.settings.spec_constraints) == (planned, ())
    assert not shown.spec_constraints.widget.children
    shown.session.redo()
    (cross,) = shown.spec_constraints.widget.children[1:]
    cross.click()
    assert shown.settings.spec_constraints == ()
    assert shown.session.store.state.out_of_date


def test_clear_removes_only_the_spec_constraints_of_the_selected_operator(shown: Explorer, planned: Plan) -> None:
    operator, panel = product(planned), controls(shown)
    other = SpecConstraint(operator="mm", kind=ConstraintKind.FORBID, spec="RR")
    shown.bridge.selection = key(stage=0, layer=operator.layer, operator=operator.name)
    assert panel.clear.disabled
    panel.forbid.click()
    shown.session.add_constraint(other)
    assert shown.settings.spec_constraints == tuple(
        sorted((other, *constraints_of(None, {operator.name: operator.output})))
    )
    panel.clear.click()
    assert shown.settings.spec_constraints == (other,)


def test_a_new_constraint_takes_the_place_of_what_it_contradicts() -> None:
    def of(name: str, kind: str, spec: str) -> SpecConstraint:
        return SpecConstraint(operator=name, kind=ConstraintKind(kind), spec=spec)

    held = (of("a", "forbid", "RS0"), of("a", "pin", "S0R"), of("b", "pin", "S0R"))
    assert constrained(held, of("a", "pin", "RR")) == (
        of("a", "forbid", "RS0"),
        of("a", "pin", "RR"),
        of("b", "pin", "S0R"),
    )
    assert constrained(held, of("a", "pin", "RS0")) == (of("a", "pin", "RS0"), of("b", "pin", "S0R"))
    assert constrained(held, of("a", "forbid", "S0R")) == (
        of("a", "forbid", "RS0"),
        of("a", "forbid", "S0R"),
        of("b", "pin", "S0R"),
    )
    assert constrained(held, of("c", "forbid", "RR")) == (*held, of("c", "forbid", "RR"))
    assert constrained(held, held[0]) == held


def test_spec_constraints_are_in_the_code_and_the_plan_and_reset_and_another_model_forget_them(
    session: Session, planner: Any, drawn: list[Any], with_settings: Callable[..., Settings]
) -> None:
    spec_constraints = constraints_of({"mm": "S0R"}, {"mm": "RS0", "addmm": ["RR", "R+P0"]})
    settings = with_settings(spec_constraints=spec_constraints)
    given = "pin={'mm': 'S0R'}, forbid={'addmm': ['R+P0', 'RR'], 'mm': ['RS0']}"
    cluster = session.sources.cluster(settings)
    assert plan_code(settings, cluster, reference=settings.model).rstrip().endswith(f", {given})")
    code, call = plan_code(settings, cluster, reference=settings.model, explores=True).rstrip().rsplit("\n", 1)
    names: dict[str, Any] = {}
    exec(code, names)
    again = eval(call, names | {"explore": lambda *a, **k: explore(*a, backend=planner.functions(), **k)})
    assert again.session.wait(LIMIT_SECONDS)
    assert again.settings.spec_constraints == spec_constraints
    assert planner.plans[-1]["pin"] == {"mm": "S0R"}
    again.session.set(spec_constraints=())
    again.toolbar_pressed("reset", {}, [])
    assert again.settings.spec_constraints == spec_constraints
    again.session.set(model="mlp-tiny")
    assert again.settings.spec_constraints == ()


def test_a_plan_that_is_opened_brings_its_spec_constraints(planned: Plan) -> None:
    held = ax.plan(
        "mlp-tiny",
        "1x4:v100",
        num_microbatches=4,
        num_layers=1,
        scheduler="serial",
        pin={product(planned).name: product(planned).output},
    )
    assert settings_of(held).spec_constraints == held.options.spec_constraints
    (constraint,) = held.options.spec_constraints
    assert changed_settings(settings_of(planned), settings_of(held)) == [f"spec constraint: {constraint}"]
    assert changed_settings(settings_of(held), settings_of(planned)) == [f"no longer constrained: {constraint}"]
