"""Specs that are pinned or forbidden, from the planner to the plan file and back."""

import json
from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore.cli import main
from alpa_explore.errors import InfeasiblePlanError, OptionError, PlanFileError
from alpa_explore.plans.file.document import plan_text
from alpa_explore.plans.report.compare import differences
from alpa_explore.plans.report.summary import plan_report
from alpa_explore.sharding.spec_constraint import ConstraintKind, SpecConstraint, constraints_of

SLOW = {"peak_flops": {"float32": 1e10, "float16": 1e10}, "half_efficiency_flops": 0.0, "launch_seconds": 1e-6}
"""A device on which dividing a tiny model pays."""


def planned(layers=2, devices=4, **constrained):
    cluster = ax.Cluster.parse(f"1x{devices}:v100", **SLOW)
    constrained.setdefault("num_microbatches", 4)
    return ax.plan("mlp-tiny", cluster, num_layers=layers, delta=1.0, scheduler="serial", **constrained)


def spec_of(plan, name):
    return next(o.output for s in plan.stages for o in s.operators if o.name == name)


def others(plan, name):
    """Specs that another stage could have given the operator, without that which it has."""
    stage = next(s.index for s in plan.stages if name in {o.name for o in s.operators})
    return {r.output for r in ax.regrets(plan, stage, name)} - {spec_of(plan, name)}


@pytest.fixture(scope="module")
def free():
    return planned(layers=1)


@pytest.fixture(scope="module")
def name(free):
    return next(o.name for o in free.stages[0].operators if "mm" in o.op and o.phase == "forward")


def test_the_plan_has_what_is_pinned_and_not_what_is_forbidden_and_is_no_faster(free, name):
    assert spec_of(free, name) not in ("", "RR")
    slower = 0
    for spec in others(free, name):
        held = planned(layers=1, pin={name: spec})
        assert spec_of(held, name) == spec
        assert held.options.spec_constraints == (SpecConstraint(operator=name, kind=ConstraintKind.PIN, spec=spec),)
        assert held.predicted.iteration_seconds >= free.predicted.iteration_seconds * (1 - 1e-9)
        slower += held.predicted.iteration_seconds > free.predicted.iteration_seconds
    assert slower
    kept = planned(layers=1, forbid={name: spec_of(free, name)})
    assert spec_of(kept, name) != spec_of(free, name)
    assert kept.predicted.iteration_seconds >= free.predicted.iteration_seconds * (1 - 1e-9)


def test_to_pin_all_that_was_chosen_changes_nothing(free):
    chosen = {o.name: o.output for s in free.stages for o in s.operators if o.output}
    held = planned(layers=1, pin=chosen)
    assert held.predicted == free.predicted
    assert [s.logical_mesh for s in held.stages] == [s.logical_mesh for s in free.stages]
    assert [d.name for d in differences(free, held)] == ["spec constraints"]


def test_a_pin_costs_what_the_stage_solved_again_under_it_costs(name):
    # Two devices have one logical mesh, and one layer one stage: no other plan is left.
    free = planned(layers=1, devices=2)
    spec = next(r.output for r in ax.regrets(free, 0, name) if 0 < r.extra_seconds < 1 and r.output != "RR")
    asked = ax.what_if(free, 0, pin={name: spec})
    held = planned(layers=1, devices=2, pin={name: spec})
    assert held.stages[0].latency_seconds == pytest.approx(asked.seconds, rel=1e-9)


def test_regrets_list_what_a_constraint_rules_out_above_the_best_without_it(free, name):
    held = planned(layers=1, pin={name: others(free, name).pop()})
    listed = ax.regrets(held, 0, name)
    assert listed[0].extra_seconds == pytest.approx(0.0, abs=1e-12)
    (chosen,) = [r for r in listed if r.chosen]
    assert chosen.output == spec_of(held, name)
    if held.stages[0].logical_mesh == free.stages[0].logical_mesh:
        extra = held.stages[0].latency_seconds - free.stages[0].latency_seconds
        assert chosen.extra_seconds == pytest.approx(extra, rel=1e-6)


def test_a_pin_on_several_stages_holds_where_its_operator_is_and_replan_keeps_it():
    free = planned(layers=3)
    last = [o.name for s in free.stages for o in s.operators if "mm" in o.op and o.phase == "forward"][-1]
    held = planned(layers=3, pin={last: "S0R"})
    assert spec_of(held, last) == "S0R"
    for count in (1, 16):
        again = ax.replan(held, num_microbatches=count)
        assert again.options.spec_constraints == held.options.spec_constraints
        assert spec_of(again, last) == "S0R"


def test_a_weight_is_stored_as_is_pinned_in_the_plan_its_file_and_on_the_command_line(tmp_path, capsys):
    def stored(plan):
        return {t.name: t.spec for s in plan.stages for t in s.tensors if t.role == "weight"}

    free = planned(layers=1, devices=2)
    weight = "hidden.0.weight"
    slower = 0
    for spec in {"RR", "S0R", "RS0"} - {stored(free)[weight]}:
        held = planned(layers=1, devices=2, pin={weight: spec})
        assert stored(held)[weight] == spec
        assert held.predicted.iteration_seconds >= free.predicted.iteration_seconds * (1 - 1e-9)
        slower += held.predicted.iteration_seconds > free.predicted.iteration_seconds
        held.save(tmp_path / "held.plan.json")
        assert ax.load_plan(tmp_path / "held.plan.json").options.spec_constraints == held.options.spec_constraints
        assert ax.what_if(held, 0, pin={weight: {"spec": spec}}).seconds == pytest.approx(
            held.stages[0].latency_seconds, rel=1e-9
        )
    assert slower
    spec_constraints = constraints_of(None, {weight: stored(free)[weight]})
    replace(free, options=replace(free.options, spec_constraints=spec_constraints)).save(tmp_path / "a.plan.json")
    with pytest.raises(PlanFileError, match=f"{weight} is not"):
        ax.load_plan(tmp_path / "a.plan.json")
    flags = ["plan", "mlp-tiny", "--cluster", "1x2:v100", "-B", "4", "--layers", "1", "--scheduler", "serial"]
    assert main([*flags, "--pin", f"{weight}=RS0", "-o", str(tmp_path / "p")]) == 0
    assert f"spec constraint: {weight} is RS0" in capsys.readouterr().out
    assert stored(ax.load_plan(tmp_path / "p"))[weight] == "RS0"


def test_what_cannot_be_of_a_weight_is_refused_with_what_there_is():
    with pytest.raises(OptionError, match=r"hidden\.0\.wait") as unknown:
        planned(pin={"hidden.0.wait": "S0R"})
    assert "hidden.0.weight" in unknown.value.remedy
    with pytest.raises(InfeasiblePlanError, match="spec constraints on a parameter") as absent:
        planned(devices=2, pin={"hidden.0.weight": "RR+P0"})
    assert "RR on one device; RR, S0R, RS0 on a mesh of one axis." in absent.value.remedy


def test_what_no_mesh_satisfies_is_refused_with_what_there_is(name):
    with pytest.raises(OptionError, match="no_such") as unknown:
        planned(pin={"no_such": "S0R"})
    assert "Did you mean" in unknown.value.remedy
    with pytest.raises(InfeasiblePlanError, match=f"{name} is RS1") as absent:
        planned(devices=2, pin={name: "RS1"})
    assert "RR on one device; RS0, S0R, RR+P0 on a mesh of one axis." in absent.value.remedy
    for constrained in ({"pin": {name: "S0 R"}}, {"pin": {name: "S0R"}, "forbid": {name: ["RR", "S0R"]}}):
        with pytest.raises(OptionError, match="The spec constraints are not valid"):
            planned(**constrained)


def test_the_best_b_is_one_at_which_the_spec_constraints_can_be_had(name):
    found = planned(layers=1, pin={name: "S0R"}, num_microbatches="auto", global_batch=8)
    assert spec_of(found, name) == "S0R"
    (whole,) = [t for t in found.microbatches if t.samples == 1]
    assert whole.iteration_seconds is None, "one sample cannot be cut"
    assert found.model.samples > 1
    with pytest.raises(InfeasiblePlanError, match="spec constraints on an operator for any number of microbatches"):
        planned(layers=1, pin={name: "S7R"}, num_microbatches="auto", global_batch=8)


def test_spec_constraints_that_exclude_each_other_in_one_stage_are_told(free):
    first, second = [o.name for o in free.stages[0].operators if "mm" in o.op][:2]
    with pytest.raises(InfeasiblePlanError, match="all spec constraints") as caught:
        planned(layers=1, pin={first: "RR+P01", second: "RR"})  # two axes, or one device
    assert f"{first} is RR+P01; {second} is RR" in caught.value.found


def test_the_file_keeps_spec_constraints_is_rebuilt_under_them_and_older_files_have_none(free, name, tmp_path):
    held = planned(layers=1, pin={name: others(free, name).pop()}, forbid={name: ["RR", "R"]})
    held.save(tmp_path / "held.plan.json")
    loaded = ax.load_plan(tmp_path / "held.plan.json")
    assert loaded.options == held.options
    assert plan_text(ax.rebuild(loaded)) == plan_text(held)
    assert f"spec constraint: {name} is {spec_of(held, name)}" in plan_report(loaded)
    document = json.loads(plan_text(free))
    del document["options"]["spec_constraints"]
    (tmp_path / "old.plan.json").write_text(json.dumps(document))
    assert ax.load_plan(tmp_path / "old.plan.json").options.spec_constraints == ()


@pytest.mark.parametrize(
    ("spec_constraints", "fault"),
    [
        ([{"operator": "mm", "kind": "pin", "spec": "<b>"}], "spec_constraints\\[0\\].spec"),
        ([{"operator": "mm", "kind": "wipe", "spec": "RR"}], "spec_constraints\\[0\\].kind"),
        ([{"operator": "mm", "kind": "pin", "spec": "RR", "more": 1}], "more"),
        ([{"operator": "a\n", "kind": "pin", "spec": s} for s in ("RR", "S0R")], "pinned to RR and to S0R"),
    ],
)
def test_a_strangers_spec_constraints_are_checked(free, tmp_path, spec_constraints, fault):
    document = json.loads(plan_text(free))
    document["options"]["spec_constraints"] = spec_constraints
    (tmp_path / "a.plan.json").write_text(json.dumps(document))
    with pytest.raises(PlanFileError, match=fault) as caught:
        ax.load_plan(tmp_path / "a.plan.json")
    assert "\n" not in str(caught.value)


def test_a_file_whose_operators_are_not_as_its_spec_constraints_say_is_refused(free, name, tmp_path):
    spec_constraints = constraints_of(None, {name: spec_of(free, name)})
    replace(free, options=replace(free.options, spec_constraints=spec_constraints)).save(tmp_path / "a.plan.json")
    with pytest.raises(PlanFileError, match=f"{name} is not {spec_of(free, name)}, but"):
        ax.load_plan(tmp_path / "a.plan.json")


def test_the_command_line_pins_and_forbids(free, name, tmp_path, capsys):
    spec = spec_of(free, name)
    common = ["plan", "mlp-tiny", "--cluster", "1x4:v100", "-B", "4", "--layers", "1", "--scheduler", "serial"]
    assert main([*common, "--pin", f"{name}={spec}", "--forbid", f"{name}=RR", "-o", str(tmp_path / "p")]) == 0
    assert f"spec constraint: {name} is not RR; spec constraint: {name} is {spec}" in capsys.readouterr().out
    assert spec_of(ax.load_plan(tmp_path / "p"), name) == spec
