"""`Plan` as a value: it is copied, compared, pickled and changed like any frozen dataclass, and stays a `Plan`."""

import copy
import pickle
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import cloudpickle
import pytest

import alpa_explore as ax
from alpa_explore.plans.plan import Plan, load_plan
from alpa_explore.plans.report.text import sentence
from tests.plans.example import example_plan, without_describe


@pytest.fixture(scope="module")
def plan() -> Plan:
    return example_plan()


def test_a_plan_of_another_number_of_microbatches_is_a_plan(plan: Plan) -> None:
    assert type(ax.replan(plan, num_microbatches=8)) is Plan


def test_replace_gives_a_plan_that_differs_in_what_was_replaced(plan: Plan) -> None:
    changed = replace(plan, warnings=("careful",))
    assert type(changed) is Plan
    assert changed != plan
    assert replace(changed, warnings=plan.warnings) == plan


def test_the_basis_of_a_plan_takes_no_part_in_comparisons(plan: Plan) -> None:
    assert replace(plan, basis=plan) == plan


def test_a_plan_shows_itself_in_a_sentence(plan: Plan) -> None:
    assert repr(plan) == f"Plan of {plan.model.name!r} on {plan.cluster}: {sentence(plan)}"


def test_a_plan_cannot_be_changed_in_place(plan: Plan) -> None:
    with pytest.raises(FrozenInstanceError):
        plan.warnings = ()  # type: ignore[misc] # that is the point


@pytest.mark.parametrize("pickler", [pickle, cloudpickle], ids=["pickle", "cloudpickle"])
def test_a_pickled_plan_is_equal_and_can_still_be_saved_and_simulated(pickler, plan: Plan, tmp_path: Path) -> None:
    stored = without_describe(plan)
    again = pickle.loads(pickler.dumps(stored))
    assert type(again) is Plan
    assert again == stored
    assert again.timeline().makespan_seconds == plan.timeline().makespan_seconds
    again.save(tmp_path / "again.plan.json")
    assert type(load_plan(tmp_path / "again.plan.json")) is Plan
    assert load_plan(tmp_path / "again.plan.json") == plan


def test_cloudpickle_takes_a_plan_with_the_problems_behind_its_stages(plan: Plan) -> None:
    again = pickle.loads(cloudpickle.dumps(plan))
    assert again.details is not None
    assert again == plan


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_an_equal_plan(copied, plan: Plan) -> None:
    stored = without_describe(plan)
    assert type(copied(stored)) is Plan
    assert copied(stored) == stored
