"""Plan files of earlier versions still open, and are written again in the present form.

versions/0.1.0.plan.json was written by version 0.1.0: `mlp-tiny` on 1x2:v100 with one operator pinned. Its options call
spec constraints `wishes`, and the column that says how a candidate was found is named `found`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import alpa_explore as ax
from alpa_explore.errors import PlanFileError
from alpa_explore.pricing.stage_costs import Provenance
from alpa_explore.sharding.spec_constraint import ConstraintKind, SpecConstraint

OLD = Path(__file__).parent / "versions" / "0.1.0.plan.json"


@pytest.fixture(scope="module")
def plan() -> ax.Plan:
    return ax.load_plan(OLD)


def test_its_pinned_operator_is_a_spec_constraint_now(plan: ax.Plan) -> None:
    assert plan.options.spec_constraints == (SpecConstraint(operator="t", kind=ConstraintKind.PIN, spec="RR"),)
    pinned = next(o for o in plan.stages[0].operators if o.name == "t")
    assert pinned.output == "RR"


def test_its_predicted_figures_are_those_of_the_file(plan: ax.Plan) -> None:
    assert plan.predicted.iteration_seconds == 0.005878130801562026
    assert plan.predicted.t_max_seconds == 0.0014607786462238397
    assert plan.predicted.sum_latency_seconds == 0.0014957948628905064
    assert plan.predicted.peak_bytes_per_device == 801024.0
    assert [(s.layers, s.devices, s.latency_seconds) for s in plan.stages] == [
        ((0, 0), (0,), 0.0014607786462238397),
        ((1, 1), (1,), 3.501621666666667e-05),
    ]


def test_the_column_that_it_calls_found_is_the_provenance(plan: ax.Plan) -> None:
    assert json.loads(OLD.read_text())["costs"]["columns"][10] == "found"
    provenances = {c.provenance for candidates in plan.costs.candidates.values() for c in candidates}
    assert provenances == {Provenance.NEAR, Provenance.FASTEST}


def test_it_is_planned_again_for_another_number_of_microbatches(plan: ax.Plan) -> None:
    assert ax.replan(plan, num_microbatches=4).predicted == plan.predicted
    again = ax.replan(plan, num_microbatches=8)
    assert again.options.spec_constraints == plan.options.spec_constraints
    assert again.predicted.iteration_seconds == pytest.approx(2 * plan.predicted.iteration_seconds, rel=0.01)


def test_it_is_rebuilt_and_its_operators_are_those_of_the_file(plan: ax.Plan) -> None:
    rebuilt = ax.rebuild(plan)
    assert rebuilt == plan
    assert rebuilt.details is not None
    for stage in plan.stages:
        described = rebuilt.details.operators(stage.layers, rebuilt.candidate_of(stage))
        assert [(o.name, o.inputs, o.outputs) for o in described] == [
            (o.name, o.inputs, o.outputs) for o in stage.operators
        ]


def test_saved_again_it_has_the_present_names_and_is_the_same_plan(plan: ax.Plan, tmp_path: Path) -> None:
    plan.save(tmp_path / "new.plan.json")
    document = json.loads((tmp_path / "new.plan.json").read_text())
    assert "wishes" not in document["options"]
    assert document["options"]["spec_constraints"] == [{"operator": "t", "kind": "pin", "spec": "RR"}]
    assert document["costs"]["columns"][10] == "provenance"
    assert ax.load_plan(tmp_path / "new.plan.json") == plan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda options: options.update(spec_constraints=[]), "options: it has spec_constraints and wishes"),
        (lambda options: options.update(wishes=7), "options.wishes: 7 must be array"),
        (lambda options: options.update(wishes=[{"operator": "t"}]), "options.wishes[0]: 'kind' is missing"),
        (lambda options: options["wishes"][0].update(kind="ask"), "options.wishes[0].kind: 'ask' must be one of"),
        (lambda options: options["wishes"][0].update(spec="S0R"), "options.wishes: "),
    ],
    ids=["both names", "not a list", "a constraint without a kind", "an unknown kind", "a spec that the plan breaks"],
)
def test_an_old_file_with_damaged_constraints_is_refused_in_one_line(
    change: Callable[[dict[str, Any]], None], message: str, tmp_path: Path
) -> None:
    document = json.loads(OLD.read_text())
    change(document["options"])
    (tmp_path / "old.plan.json").write_text(json.dumps(document))
    with pytest.raises(PlanFileError) as caught:
        ax.load_plan(tmp_path / "old.plan.json")
    assert message in str(caught.value)
    assert "damaged" in str(caught.value)
    assert "\n" not in str(caught.value)
