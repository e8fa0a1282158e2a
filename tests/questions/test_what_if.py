"""What-if on an operator: pins are kept, their price is the regret, and what cannot be is explained."""

import itertools
from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore.errors import OptionError


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    slow = {"peak_flops": {"float32": 1e10, "float16": 1e10}, "half_efficiency_flops": 0.0, "launch_seconds": 1e-6}
    cluster = ax.Cluster.parse("1x4:v100", **slow)
    return ax.plan("gpt-tiny", cluster, num_microbatches=4, num_layers=1, scheduler="serial", cache=False)


def products(plan):
    return [o for o in plan.stages[0].operators if o.flops > 0 and o.phase != "update"]


@pytest.mark.slow
def test_pinning_a_strategy_costs_its_regret_and_is_kept(plan):
    checked = 0
    for operator in products(plan)[:6:2]:
        listed = ax.regrets(plan, 0, operator.name)
        assert listed[0].extra_seconds == pytest.approx(0.0, abs=1e-12)
        assert [r.strategy for r in listed if r.chosen] == [operator.strategy]
        for regret in itertools.islice((r for r in listed if 0 < r.extra_seconds < 1), 3):
            constraint = {"strategy": regret.strategy, "inputs": list(regret.inputs), "output": regret.output}
            found = ax.what_if(plan, 0, pin={operator.name: constraint})
            assert found.extra_seconds == pytest.approx(regret.extra_seconds, rel=1e-6, abs=1e-12)
            after = next(o for o in found.operators if o.name == operator.name)
            assert (after.strategy, after.inputs, after.output) == (regret.strategy, regret.inputs, regret.output)
            assert operator.name in [c.name for c in found.changed]
            checked += 1
    assert checked > 5


def test_forbidding_what_was_chosen_gives_the_next_best(plan):
    operator = products(plan)[2]
    listed = ax.regrets(plan, 0, operator.name)
    found = ax.what_if(plan, 0, forbid={operator.name: {"strategy": operator.strategy}})
    cheapest = min(r.extra_seconds for r in listed if r.strategy != operator.strategy)
    assert found.extra_seconds == pytest.approx(cheapest, rel=1e-6, abs=1e-12)
    assert next(o for o in found.operators if o.name == operator.name).strategy != operator.strategy


def test_a_stored_weight_can_be_pinned_and_kept_small(plan):
    weight = next(n for n in names(plan) if n.endswith("mlp.up.weight"))
    whole = ax.what_if(plan, 0, pin={weight: "RR"})
    quarter = ax.what_if(plan, 0, pin={weight: {"max_share": 0.25}})
    assert quarter.peak_bytes < whole.peak_bytes
    assert whole.extra_seconds >= -1e-12
    assert quarter.extra_seconds >= -1e-12
    assert not ax.what_if(plan, 0).changed, "without a spec constraint nothing changes"
    for wrong in ("a quarter", None, True):
        with pytest.raises(OptionError, match="is no number"):
            ax.what_if(plan, 0, pin={weight: {"max_share": wrong}})


def names(plan):
    details = plan.details
    problem = details.problem(plan.stages[0].layers, candidate(plan).logical_mesh)
    return [p.name for p in problem.stage.layered.graph.parameters]


def candidate(plan):
    key = plan.stages[0].solution_key
    return next(c for found in plan.costs.candidates.values() for c in found if c.solution_key == key)


@pytest.mark.slow
def test_collectives_that_come_and_go_are_named(plan):
    communicating = next(o for o in products(plan) if len(ax.regrets(plan, 0, o.name)) > 2)
    other = max(
        (r for r in ax.regrets(plan, 0, communicating.name) if r.extra_seconds < 1), key=lambda r: r.extra_seconds
    )
    found = ax.what_if(plan, 0, pin={communicating.name: {"strategy": other.strategy, "inputs": list(other.inputs)}})
    lines = {f"{o.name}: {line}" for o in found.operators for line in o.communication}
    assert set(found.appeared) <= lines
    assert not set(found.disappeared) & lines
    assert found.appeared or found.disappeared


@pytest.mark.parametrize(
    ("stage", "spec_constraints", "said"),
    [
        (7, {}, "no such stage: stage 7. It has one stage: 0"),
        (0, {"adm": "RR"}, "Did you mean"),
        (0, {"OPERATOR": "S9R"}, "can be"),
        (0, {"OPERATOR": {"colour": "red"}}, "parts output"),
    ],
)
def test_bad_spec_constraints_are_explained(plan, stage, spec_constraints, said):
    operator = products(plan)[0].name
    spec_constraints = {
        operator if name == "OPERATOR" else name: constraint for name, constraint in spec_constraints.items()
    }
    with pytest.raises(OptionError, match=said):
        ax.what_if(plan, stage, pin=spec_constraints)


def test_a_plan_from_a_file_says_what_to_do(plan, tmp_path):
    plan.save(tmp_path / "a.plan.json")
    with pytest.raises(OptionError, match="rebuild"):
        ax.what_if(ax.load_plan(tmp_path / "a.plan.json"), 0)


def test_whether_it_fits_is_asked_of_the_choice_after_the_question(plan):
    checked = 0
    for operator in products(plan):
        for regret in [r for r in ax.regrets(plan, 0, operator.name) if not r.chosen and r.extra_seconds < 1][:2]:
            pin = {operator.name: {"strategy": regret.strategy, "inputs": list(regret.inputs), "output": regret.output}}
            found = ax.what_if(plan, 0, pin=pin)
            if found.peak_bytes == found.peak_bytes_before:
                continue
            between = int((found.peak_bytes + found.peak_bytes_before) / 2)
            device = replace(plan.cluster.device, memory_bytes=between)
            asked = ax.what_if(replace(plan, cluster=replace(plan.cluster, device=device)), 0, pin=pin)
            assert asked.fits == (found.peak_bytes < found.peak_bytes_before)
            checked += 1
        if checked > 1:
            return
    raise AssertionError("no question changes the memory")
