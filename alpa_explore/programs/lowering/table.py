"""Choose and check the schedule of a program, without lowering anything.

The backward passes of a schedule must be either all whole (B) or all in two halves (I and W), because a program stores
the instructions of a task once for all microbatches.
"""

from alpa_explore.errors import ProgramError
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.schedule_stages import schedule_stages, schedule_table
from alpa_explore.schedules.simulator.simulate import check as check_schedule
from alpa_explore.schedules.task import Action, Schedule


def program_schedule(plan: Plan, schedule: Schedule | str | None = None) -> Schedule:
    """The schedule of a run: `schedule` itself, the schedule of that name for the plan's B, or the plan's own.

    Raises as `plans.schedule_stages` and `check_table`.
    """
    table = schedule_table(plan, schedule)
    check_table(table, len(schedule_stages(plan, table)))
    return table


def check_table(schedule: Schedule, num_stages: int) -> None:
    """Check that a program with `num_stages` stages can follow a schedule.

    ProgramError for another number of stages, or when some backward passes are whole and some in two halves;
    ScheduleError where the schedule cannot run.
    """
    if schedule.num_stages != num_stages:
        raise ProgramError(
            "The schedule has other stages than the plan",
            found=f"{schedule.num_stages} in {schedule.name}, {num_stages} in the plan",
            remedy="Choose one with a stage on each submesh, such as '1f1b', or make one for this plan.",
        )
    if {Action.BACKWARD, Action.BACKWARD_INPUT} <= set(schedule.actions.tolist()):
        raise ProgramError(
            "A program runs all backward passes whole, or all in two halves",
            found=f"both in {schedule.name}",
            remedy="Write the whole ones as an I with a W behind it.",
        )
    check_schedule(schedule)
