"""A plan for the interleaved schedule runs the stages of that schedule, from memory and from its file alike."""

import pytest

import alpa_explore as ax
from alpa_explore.errors import PlanFileError
from alpa_explore.plans.file.document import from_document, to_document
from alpa_explore.programs.check import check
from alpa_explore.programs.execution.rehearsal import live_bytes
from alpa_explore.programs.lowering.lower import lower
from tests.programs.cases import Case, optimal


def planned(case, cluster, **pipeline):
    options = ax.PipelineOptions(**pipeline)
    return ax.plan(
        case.graph, cluster, num_microbatches=len(case.microbatches), num_layers=8, delta=2.0, pipeline=options
    )


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize(("cluster", "stages"), [("1x2:v100", 2), ("1x4:v100", 2), ("1x4:v100", 4)])
def test_it_equals_the_whole_and_so_does_its_file(cluster, stages) -> None:
    case = Case("gpt-tiny", num_microbatches=4)
    plan = planned(case, cluster, schedule="interleaved-1f1b", num_stages=stages)
    program = lower(plan)
    check(program)
    assert program.schedule.submesh_of_stage == tuple(range(stages)) * 2
    assert [s.ranks for s in program.stages[:stages]] == [s.devices for s in plan.stages]
    case.assert_equal(program)
    again = lower(ax.rebuild(from_document(to_document(plan), ax.Plan), case.graph))
    assert live_bytes(again) == live_bytes(program)
    assert [s.tasks for s in again.stages] == [s.tasks for s in program.stages]


@pytest.mark.sweep(kept=2, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize(("schedule", "stages"), [("zb-v", 2), ("v-half", 4), ("v-min", 2), ("dualpipe-v", 2)])
def test_a_v_shape_goes_down_and_back_up_and_so_does_its_file(schedule, stages) -> None:
    case = Case("gpt-tiny", num_microbatches=4)
    plan = planned(case, "1x4:v100", schedule=schedule, num_stages=stages)
    program = lower(plan)
    check(program)
    assert program.schedule.submesh_of_stage == (*range(stages), *reversed(range(stages)))
    assert program.stages[0].ranks == program.stages[-1].ranks == plan.stages[0].devices
    case.assert_equal(program)
    assert plan.predicted.iteration_seconds == plan.timeline().makespan_seconds
    again = lower(ax.rebuild(from_document(to_document(plan), ax.Plan), case.graph))
    assert [s.tasks for s in again.stages] == [s.tasks for s in program.stages]


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("stages", [2, 4])
def test_dual_pipe_runs_two_copies_whose_gradients_are_summed_and_so_does_its_file(stages) -> None:
    case = Case("gpt-tiny", num_microbatches=8)
    plan = planned(case, "1x4:v100", schedule="dualpipe", num_stages=stages)
    program = lower(plan)
    check(program)
    assert program.schedule.submesh_of_stage == (*range(stages), *reversed(range(stages)))
    ends = (program.stages[0], program.stages[stages - 1])
    assert [s.ranks for s in ends] == [plan.stages[0].devices, plan.stages[-1].devices]
    case.assert_equal(program)
    again = lower(ax.rebuild(from_document(to_document(plan), ax.Plan), case.graph))
    assert [s.tasks for s in again.stages] == [s.tasks for s in program.stages]


def test_a_weight_that_stages_of_both_copies_share_is_summed_over_all_of_them() -> None:
    case = Case("three-times", num_microbatches=4)
    copy = [((0, 1), (2,)), ((2, 3), (2,))]
    program = case.program(copy * 2, optimal, schedule="dualpipe", turns=2)
    check(program)
    case.assert_equal(program)


def test_a_plan_for_another_schedule_can_interleave_too_but_its_file_says_not_how() -> None:
    case = Case("gpt-tiny", num_microbatches=4)
    plan = planned(case, "1x2:v100", num_stages=2)
    program = lower(plan, "interleaved-1f1b")
    assert len(program.stages) == 4
    case.assert_equal(program)
    read = ax.rebuild(from_document(to_document(plan), ax.Plan), case.graph)
    assert lower(read, "gpipe").ranks == (0, 1)
    with pytest.raises(PlanFileError, match="plan again for this one"):
        lower(read, "interleaved-1f1b")
