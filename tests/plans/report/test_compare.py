"""What two plans have otherwise, on plans that differ where the test says."""

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


def on_mesh(plan: Plan, stage: int, mesh: tuple[int, ...], **changes) -> Plan:
    """The plan with one stage of a single operator, on another logical mesh (or submesh)."""
    own = plan.stages[stage]
    changed = replace(own, logical_mesh=mesh, operators=own.operators[:1], **changes)
    return replace(plan, stages=tuple(changed if s is own else s for s in plan.stages))


def test_an_operator_with_other_pieces_is_found_with_both_cuts() -> None:
    first = PLAN.stages[1].operators[0]
    four = on_mesh(PLAN, 1, (1, 4), devices=(0, 1, 2, 3), submesh=(1, 4))
    one = with_operator(four, 1, 0, inputs=("S0R",), outputs=("RS0",))
    other = with_operator(four, 1, 0, inputs=("S0R",), outputs=("RR",))
    (found,) = compare_plans(one, other).operators
    assert (found.name, found.layer) == (first.name, first.layer)
    assert found.old.startswith("S0R → RS0 on logical mesh ")
    assert found.new.startswith("S0R → RR on logical mesh ")


def test_the_same_pieces_under_other_names_are_no_difference() -> None:
    """S0 on 1×4 and S01 on 2×2 leave the same quarter on each device."""
    four = {"devices": (0, 1, 2, 3), "submesh": (1, 4)}
    flat = on_mesh(with_operator(PLAN, 0, 0, inputs=("S0R",), outputs=("S0R+P0",)), 0, (1, 4), **four)
    flat = with_operator(flat, 0, 0, outputs=("RS0",))
    square = with_operator(on_mesh(flat, 0, (2, 2), **four), 0, 0, inputs=("S01R",), outputs=("RS01",))
    assert compare_plans(flat, square).operators == ()
    assert compare_plans(flat, on_mesh(flat, 0, (4,), **four)).operators == ()
    elsewhere = on_mesh(flat, 0, (1, 4), devices=(4, 5, 6, 7), submesh=(1, 4))
    assert compare_plans(flat, elsewhere).operators == (), "its place in the cluster does not matter"
    (halves,) = compare_plans(flat, with_operator(square, 0, 0, inputs=("S0R",))).operators
    assert halves.new == "S0R → RS01 on logical mesh 2×2"
    turned = with_operator(square, 0, 0, inputs=("S1R",), outputs=("S1R",))
    straight = with_operator(square, 0, 0, inputs=("S0R",), outputs=("S0R",))
    assert len(compare_plans(straight, turned).operators) == 1, "the same pieces, but each device has another one"


def test_the_same_pieces_on_a_submesh_of_another_shape_are_counted_apart() -> None:
    straight = with_operator(
        on_mesh(PLAN, 0, (2, 2), devices=(0, 1, 2, 3), submesh=(1, 4)), 0, 0, inputs=("S0R",), outputs=("S0R",)
    )
    turned = on_mesh(straight, 0, (2, 2), devices=(0, 1, 4, 5), submesh=(2, 2))
    turned = with_operator(turned, 0, 0, inputs=("S1R",), outputs=("S1R",))
    found = compare_plans(straight, turned)
    assert (found.operators, found.moved) == ((), 1)


def test_whole_is_whole_on_any_number_of_devices() -> None:
    four = on_mesh(PLAN, 0, (1, 4), devices=(0, 1, 2, 3), submesh=(1, 4))
    whole = with_operator(four, 0, 0, inputs=("RR",), outputs=("RR",))
    alone = on_mesh(whole, 0, (1, 1), devices=(0,), submesh=(1, 1))
    assert compare_plans(whole, alone).operators == ()
    (found,) = compare_plans(with_operator(four, 0, 0, inputs=("S0R",), outputs=("S0R",)), whole).operators
    assert found.new == WHOLE


def test_operators_that_change_alike_are_one_group_and_the_group_with_the_most_flops_is_first() -> None:
    changed = PLAN
    kinds = [(place, o.op) for place, o in enumerate(PLAN.stages[2].operators) if o.phase == "forward"]
    for place, _ in kinds[:20]:
        changed = with_operator(changed, 2, place, inputs=("RR",), outputs=("RR",))
    found = compare_plans(PLAN, changed)
    groups = found.groups
    assert sorted(o.name for g in groups for o in g) == sorted(o.name for o in found.operators)
    flops = [sum(o.flops for o in g) for g in groups]
    assert flops == sorted(flops, reverse=True)
    assert len(groups) < len(found.operators)


def test_plans_of_other_models_share_no_operators_and_are_compared_all_the_same() -> None:
    found = compare_plans(PLAN, example_plan(num_microbatches=64, mark="x"))
    assert dict(found.common) == {}
    assert not found.equal_batches
    assert {"model", "B"} <= {d.name for d in found.settings}
