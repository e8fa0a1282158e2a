"""A lowered program is sound; one that was tampered with is refused, and what is wrong is named."""

from dataclasses import replace

import pytest

import alpa_explore as ax
from alpa_explore.errors import ProgramError, RecipeError, ScheduleError
from alpa_explore.plans.file.document import from_document, to_document
from alpa_explore.programs.check import check
from alpa_explore.programs.execution.interpret import interpret
from alpa_explore.programs.lowering.decision import stage_decision
from alpa_explore.programs.lowering.lower import lower
from alpa_explore.programs.program import Collective, Compute, Free, Receive, Send, Slice
from alpa_explore.schedules.catalog import build_schedule
from alpa_explore.schedules.task import Action, schedule_of
from tests.programs.cases import Case, at_random, optimal
from tests.programs.test_interpret import PIPELINES


@pytest.fixture(scope="module")
def case() -> Case:
    return Case("gpt-tiny", num_microbatches=2)


@pytest.fixture(scope="module")
def program(case: Case):
    return case.program(PIPELINES["1+2+1"], at_random(3))


@pytest.mark.parametrize("stages", PIPELINES)
@pytest.mark.parametrize("seed", range(2))
def test_what_lowering_makes_is_sound(case: Case, stages, seed) -> None:
    check(case.program(PIPELINES[stages], at_random(seed)))


def changed(program, stage, action, rank, change):
    """The program with the instructions of one rank in one task changed."""
    old = program.stages[stage]
    instructions = tuple(change(list(old.tasks[action][rank])))
    tasks = {**old.tasks, action: {**old.tasks[action], rank: instructions}}
    stages = list(program.stages)
    stages[stage] = replace(old, tasks=tasks)
    return replace(program, stages=tuple(stages))


def without(kind, number=0):
    def change(instructions):
        places = [i for i, one in enumerate(instructions) if isinstance(one, kind)]
        del instructions[places[number]]
        return instructions

    return change


def doubled(kind):
    def change(instructions):
        place = next(i for i, one in enumerate(instructions) if isinstance(one, kind))
        return [*instructions[: place + 1], *instructions[place:]]

    return change


@pytest.mark.parametrize(
    ("stage", "action", "rank", "change", "message"),
    [
        (0, Action.FORWARD, 0, without(Send), "awaited and not sent: message .* from rank 0"),
        (2, Action.BACKWARD, 3, without(Send), "awaited and not sent: message .* from rank 3"),
        (1, Action.FORWARD, 1, without(Compute), "is read that is not there: value .* in stage 1, rank 1, F"),
        (1, Action.FORWARD, 1, without(Free), "never freed|read that is not there"),
        (1, Action.BACKWARD, 2, without(Free, -1), "never freed"),
        (2, Action.FORWARD, 3, doubled(Free), "read that is not there"),
        (0, Action.UPDATE, 0, without(Send), "awaited and not sent: .* in update tasks"),
    ],
)
def test_a_program_that_was_tampered_with_is_refused(program, stage, action, rank, change, message) -> None:
    with pytest.raises(ProgramError, match=message):
        check(changed(program, stage, action, rank, change))


def test_a_message_that_nobody_receives_is_named(program) -> None:
    with pytest.raises(ProgramError, match="sent and not received"):
        check(changed(program, 0, Action.FORWARD, 0, doubled(Send)))


def test_a_box_of_another_shape_is_no_match(program) -> None:
    def smaller(instructions):
        place = next(i for i, one in enumerate(instructions) if isinstance(one, Receive))
        one = instructions[place]
        (source, box), *rest = one.pieces
        instructions[place] = replace(one, pieces=((source, ((box[0][0], box[0][1] - 1), *box[1:])), *rest))
        return instructions

    with pytest.raises(ProgramError, match="is sent and not received"):
        check(changed(program, 1, Action.FORWARD, 1, smaller))


def test_collectives_in_another_order_are_a_deadlock_for_the_check_and_for_the_interpreter(case: Case) -> None:
    program = case.program([((0, 3), (2, 2))], optimal)
    instructions = program.stages[0].tasks[Action.UPDATE][0]
    first, second = [i for i, one in enumerate(instructions) if isinstance(one, Collective)][:2]

    def swapped(given):
        # The sums that they read are lasting values: nothing but the order is wrong.
        given[first], given[second] = given[second], given[first]
        return given

    broken = changed(program, 0, Action.UPDATE, 0, swapped)
    with pytest.raises(ProgramError, match=r"Ranks wait for each other|is read that is not there"):
        check(broken)
    with pytest.raises((ProgramError, KeyError)):
        interpret(broken, case.state, case.microbatches)


def test_a_wrong_piece_shows_in_the_gradients_so_that_the_proof_can_fail(case: Case) -> None:
    program = case.program([((0, 3), (2,))], at_random(0))
    whole = [
        i
        for i, one in enumerate(program.stages[0].tasks[Action.FORWARD][0])
        if isinstance(one, Slice) and one.pieces == 2
    ]

    def other(instructions):
        instructions[whole[0]] = replace(instructions[whole[0]], piece=1)
        return instructions

    broken = changed(program, 0, Action.FORWARD, 0, other)
    check(broken)
    with pytest.raises((AssertionError, ProgramError)):
        case.assert_equal(broken)


def test_schedules_that_a_program_cannot_run_are_refused(case: Case) -> None:
    mixed = schedule_of("mixed", [build_schedule(n, 2, 2).order(p) for p, n in enumerate(("1f1b", "zb-h1"))], 2)
    problems = [case.problem(*layers, ()) for layers in ((0, 1), (2, 3))]
    decisions = [stage_decision(problem, optimal(problem), [r]) for r, problem in enumerate(problems)]
    with pytest.raises(ProgramError, match="all in two halves"):
        lower(decisions, mixed)
    three = Case("mlp-tiny", num_microbatches=3)
    program = three.program(PIPELINES["1+1"], optimal)
    with pytest.raises(ProgramError, match="2 given, B = 3"):
        interpret(program, three.state, three.microbatches[:2])


@pytest.mark.sweep(kept=1, in_turn=True)
@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp-tiny", "gpt-tiny"])
def test_a_plan_is_lowered_and_equals_the_whole(model) -> None:
    case = Case(model, num_microbatches=2)
    plan = ax.plan(case.graph, "1x4:v100", num_microbatches=2, num_layers=2)
    program = lower(plan)
    check(program)
    assert program.ranks == (0, 1, 2, 3)
    case.assert_equal(program)


def test_a_plan_that_cannot_be_lowered_is_refused_with_the_reason(case: Case) -> None:
    plan = ax.plan(case.graph, "1x4:v100", num_microbatches=2, num_layers=2)
    with pytest.raises(RecipeError, match="made in a notebook"):
        lower(from_document(to_document(plan), ax.Plan))
    with pytest.raises(ScheduleError, match="3 submeshes and B = 2; the plan has 2"):
        lower(plan, build_schedule("1f1b", len(plan.stages) + 1, 2))
    problem = case.problem(0, 3, ())
    with pytest.raises(ProgramError, match="2 in 1f1b, 1 in the plan"):
        lower([stage_decision(problem, optimal(problem), [0])], build_schedule("1f1b", 2, 2))
    orders = [plan.timeline().schedule.order(p)[-2::-1] for p in range(len(plan.stages))]
    with pytest.raises(ScheduleError, match="deadlocks"):
        lower(plan, schedule_of("reversed", orders, 2))
