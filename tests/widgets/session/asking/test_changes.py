"""A mark of a figure as the settings of the plan that it stands for."""

from dataclasses import replace

import pytest
from alpa_explore_widgets.session.asking.questions import other_stages, settings_of_change
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.settings import settings_of

import alpa_explore as ax
from alpa_explore.figures.decisions.stage_cost_grid import place_of
from alpa_explore.figures.decisions.stage_costs import possible_stages, stage_costs_table
from alpa_explore.figures.keys import change_key
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import TriedSchedule

STAGES = "cuts", "num_stages", "stage_submeshes"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return ax.plan("gpt-tiny", "1x4:v100", num_microbatches=8, num_layers=4, delta=1.0)


def replanned(plan: Plan, change: str) -> Plan:
    changes = settings_of_change(plan, change)
    assert changes is not None
    pipeline = PipelineOptions(**{**{"paper": plan.options.pipeline.paper, "schedule": "1f1b"}, **changes})
    return ax.replan(plan, pipeline=pipeline)


def test_every_candidate_of_t_max_opens_with_the_stages_that_the_sweep_found(plan: Plan) -> None:
    found = [p for p in plan.t_max_sweep if p.iteration_seconds is not None]
    assert len(found) > 1
    for point in found:
        opened = replanned(plan, f"t_max={point.t_max_seconds!r}")
        assert opened.predicted.t_max_seconds <= point.t_max_seconds
        # The sweep counts with the candidate, of which the slowest stage may be short.
        assert opened.predicted.iteration_seconds <= point.iteration_seconds * (1 + 1e-9)
    assert replanned(plan, f"t_max={plan.predicted.t_max_seconds!r}").stages == plan.stages


def test_a_cell_of_the_stage_costs_opens_the_best_plan_that_has_this_stage(plan: Plan) -> None:
    opened = replanned(plan, "stage=1-2@1x2")
    assert ((1, 2), (1, 2)) in [(stage.layers, stage.submesh) for stage in opened.stages]
    assert opened.predicted.iteration_seconds >= plan.predicted.iteration_seconds * (1 - 1e-9)


def test_a_cell_opens_from_a_plan_that_was_opened_from_another_cell(plan: Plan) -> None:
    opened = replanned(plan, "stage=1-2@1x2")
    again = settings_of_change(opened, "stage=0-3@1x4")
    assert again is not None, "the stages that the plan was asked to have are left"
    assert again == settings_of_change(plan, "stage=0-3@1x4")


def test_a_cell_that_the_schedule_of_the_plan_has_no_pipeline_for_opens_under_another(plan: Plan) -> None:
    pipeline = replace(plan.options.pipeline, schedule="interleaved-1f1b", stages_per_submesh=2)
    taking_turns = replace(plan, options=replace(plan.options, pipeline=pipeline), schedules=())
    cell = "stage=0-0@1x2"  # one layer is not two stages
    assert settings_of_change(taking_turns, cell) is None
    compared = TriedSchedule(schedule="1f1b", stages_per_submesh=1, iteration_seconds=1.0)
    assert settings_of_change(replace(taking_turns, schedules=(compared,)), cell) == settings_of_change(plan, cell)


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved-1f1b"])
@pytest.mark.parametrize("others", [(), ("1f1b",)])
@pytest.mark.parametrize("memory", [1.0, 0.6])
def test_a_cell_promises_a_plan_exactly_where_it_opens_one_and_says_under_which_schedule(
    plan: Plan, schedule: str, others: tuple[str, ...], memory: float
) -> None:
    pipeline = replace(plan.options.pipeline, schedule=schedule, stages_per_submesh=2)
    compared = tuple(TriedSchedule(schedule=name, stages_per_submesh=1, iteration_seconds=1.0) for name in others)
    room = int(memory * max(c.peak_bytes(1.0) for found in plan.costs.candidates.values() for c in found))
    costs = replace(plan.costs, device_memory_bytes=room)
    shown = replace(plan, options=replace(plan.options, pipeline=pipeline), schedules=compared, costs=costs)
    under, rows = possible_stages(shown), stage_costs_table(shown)
    assert {place for _, place in under} <= {place_of(row) for row in rows}
    for row in rows:
        (first, last), (nodes, devices) = row["layers"], row["submesh"]
        options = other_stages(shown, stage=(first, last, nodes, devices))
        found = None if options is None else options.schedule
        assert under.get((row["layers"], place_of(row))) == found, row["layers"]
    if others and memory == 1.0 and schedule != "1f1b":
        assert set(under.values()) == {"interleaved-1f1b", "1f1b"}


def test_a_mark_of_a_plan_that_was_replaced_on_screen_still_opens(plan: Plan, session: Session) -> None:
    fewer = {k: of_range for k, of_range in plan.costs.candidates.items() if k[:2] == (0, 3)}
    other = replace(ax.replan(plan, num_microbatches=16), costs=replace(plan.costs, candidates=fewer))
    session.show_plan(plan, settings_of(plan))
    session.show_plan(other, settings_of(other))
    cell = "stage=1-2@1x2"
    assert settings_of_change(session.store.state.plan, cell) is None
    session.select(change_key("stage", cell.removeprefix("stage=")))
    asked = session.store.state.settings
    assert {name: getattr(asked, name) for name in STAGES} == settings_of_change(plan, cell)


def test_a_number_of_microbatches_keeps_its_size(plan: Plan) -> None:
    assert settings_of_change(plan, "microbatches=16x2") == {"num_microbatches": 16, "microbatch": 2}


def test_what_no_plan_has_and_what_is_no_change_is_none(plan: Plan) -> None:
    assert settings_of_change(plan, "t_max=1e-12") is None
    assert settings_of_change(plan, "stage=0-0@1x4") is None, "the other layers have no device"
    assert settings_of_change(plan, "stage=0") is None
    assert settings_of_change(plan, "nonsense") is None
