"""What two plans have otherwise, on plans that differ where the test says."""

from __future__ import annotations

from dataclasses import replace

from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import WHOLE, compare_plans
from tests.plans.example import example_plan

PLAN = example_plan()


def with_operator(plan: Plan, stage: int, place: int, **changes) -> Plan:
    own = plan.stages[stage]
    operators = list(own.operators)
    operators[place] = replace(operators[place], **changes)
    changed = replace(own, operators=tuple(operators))
    return replace(plan, stages=tuple(changed if s is own else s for s in plan.stages))


def test_a_plan_and_itself_differ_in_nothing() -> None:
    found = compare_plans(PLAN, PLAN)
    assert (found.settings, found.operators) == ((), ())
    assert sum(found.common.values()) == sum(len(s.operators) for s in PLAN.stages)
    assert all(old == new for old, new in found.headline)


def test_an_operator_with_another_spec_or_strategy_is_found_with_both_ways() -> None:
    first = PLAN.stages[1].operators[3]
    specs = with_operator(PLAN, 1, 3, inputs=("S0R",), outputs=("RS0",))
    other = with_operator(PLAN, 1, 3, inputs=("S0R",), outputs=("RS0",), strategy="another")
    (found,) = compare_plans(specs, other).operators
    assert (found.name, found.layer) == (first.name, first.layer)
    assert found.old.startswith("S0R → RS0 on ")
    assert "(another)" in found.new


def test_the_same_specs_on_another_mesh_are_other_pieces_but_whole_is_whole_anywhere() -> None:
    split = with_operator(PLAN, 0, 0, inputs=("S0R",), outputs=("S0R",))
    alone = with_operator(split, 0, 1, inputs=("RR",), outputs=("RR",))
    stage = replace(alone.stages[0], logical_mesh=(7,), operators=alone.stages[0].operators[:2])
    there = replace(alone, stages=(stage, *alone.stages[1:]))
    (found,) = compare_plans(alone, there).operators
    assert found.new.startswith("S0R → S0R on 7")
    squeezed = replace(alone.stages[0], logical_mesh=(1, *alone.stages[0].logical_mesh))
    assert compare_plans(alone, replace(alone, stages=(squeezed, *alone.stages[1:]))).operators == ()
    (back,) = compare_plans(there, with_operator(there, 0, 0, inputs=("RR",), outputs=("RR",))).operators
    assert back.new == WHOLE


def test_plans_of_other_models_share_no_operators_and_are_compared_all_the_same() -> None:
    found = compare_plans(PLAN, example_plan(num_microbatches=64, mark="x"))
    assert dict(found.common) == {}
    assert not found.equal_batches
    assert {"model", "B"} <= {d.name for d in found.settings}
