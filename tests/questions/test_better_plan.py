"""A plan is better only where it saves more than predictions can tell."""

import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import alpa_explore as ax
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.options import AUTO, PipelineOptions
from alpa_explore.planner.request import PlanRequest
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import TriedSchedule
from alpa_explore.questions.better_plan import BETTER
from tests.plans.example import example_plan

PRESENT, *OTHERS = (example_plan(name=name) for name in ("present", "without", "with"))
MODULE = sys.modules[ax.better_plan.__module__]


@given(st.tuples(*[st.sampled_from([-0.5, 0.0, 0.2, 0.99, 1.01, 3.0])] * 2))
def test_of_two_plans_that_save_a_share_the_first_that_saves_enough_or_clearly_more_is_the_best(
    saved: tuple[float, float],
) -> None:
    """Without sends in T and with them the planner makes a plan each; the shares are in units of the threshold."""
    seconds = {id(plan): 1.0 - BETTER * share for plan, share in zip(OTHERS, saved, strict=True)}
    made = iter(OTHERS)

    def planned(*_: Any, **__: Any) -> Plan:
        return next(made)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "planned", planned)
        patch.setattr(MODULE, "reprice", lambda plan, *_, **__: plan)
        patch.setattr(MODULE, "simulated_seconds", lambda plan: seconds.get(id(plan), 1.0))
        found = ax.better_plan(PRESENT, PRESENT.cluster, graph=object.__new__(TrainingGraph))
    best, least = PRESENT, 1.0
    for other in OTHERS:
        if 1.0 - seconds[id(other)] / least > BETTER:
            best, least = other, seconds[id(other)]
    assert found.best is best
    assert found.faster == pytest.approx(1.0 - least)
    assert (str(found) == "the present plan stays the best") is (best is PRESENT)


@pytest.mark.parametrize(("zigzag", "asked"), [(1, None), (4, 4)])
def test_the_planner_is_asked_as_for_the_present_plan(monkeypatch: pytest.MonkeyPatch, zigzag: int, asked: int) -> None:
    pipeline = ax.PipelineOptions(schedule="gpipe", submesh_space="power-of-two")
    options = replace(
        PRESENT.options, boundaries=("h.1",), delta=0.25, pipeline=pipeline, rematerialization="attention"
    )
    present = replace(PRESENT, options=options, model=replace(PRESENT.model, zigzag=zigzag))
    requests: list[PlanRequest] = []
    monkeypatch.setattr(MODULE, "planned", lambda request, _: requests.append(request) or present)
    monkeypatch.setattr(MODULE, "reprice", lambda plan, *_, **__: plan)
    monkeypatch.setattr(MODULE, "simulated_seconds", lambda plan: 1.0)
    ax.better_plan(present, present.cluster, graph=object.__new__(TrainingGraph))
    assert requests[0].pipeline == pipeline
    for request in requests:
        assert replace(request, pipeline=pipeline).options(options.num_layers) == options
        assert (request.zigzag, request.cluster) == (asked, present.cluster)


@pytest.mark.parametrize("chosen", [True, False])
def test_a_schedule_that_the_planner_chose_is_chosen_again(monkeypatch: pytest.MonkeyPatch, chosen: bool) -> None:
    requests: list[PlanRequest] = []

    def planned(request: PlanRequest, _: object) -> Plan:
        requests.append(request)
        return PRESENT

    monkeypatch.setattr(MODULE, "planned", planned)
    monkeypatch.setattr(MODULE, "reprice", lambda plan, *_, **__: plan)
    tried = TriedSchedule(schedule="interleaved-1f1b", stages_per_submesh=4, iteration_seconds=1.0)
    own = PipelineOptions(schedule="interleaved-1f1b", stages_per_submesh=4, paper=False)
    plan = replace(PRESENT, options=replace(PRESENT.options, pipeline=own), schedules=(tried,) if chosen else ())
    ax.better_plan(plan, plan.cluster, graph=object.__new__(TrainingGraph))
    asked = {(r.pipeline.schedule, r.pipeline.stages_per_submesh) for r in requests}
    assert asked == {(AUTO, 2) if chosen else ("interleaved-1f1b", 4)}
