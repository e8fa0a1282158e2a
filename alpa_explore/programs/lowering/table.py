"""The table of tasks that a program follows: found and checked without lowering anything.

Its backward passes are all whole (B) or all in two halves (I and W): a task is written once for all microbatches.
"""

from __future__ import annotations

from alpa_explore.errors import ProgramError
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.schedule_stages import schedule_stages, schedule_table
from alpa_explore.schedules.simulator.check import check as check_schedule
from alpa_explore.schedules.task import Action, Schedule


def program_schedule(plan: Plan, schedule: Schedule | str | None = None) -> Schedule:
    """What a run of `plan` follows: a table, one by name for the plan's B, or the plan's own unless given.

    Raises as `plans.schedule_stages` and `check_table`.
    """
    table = schedule_table(plan, schedule)
    check_table(table, len(schedule_stages(plan, table)))
    return table


def check_table(schedule: Schedule, num_stages: int) -> None:
    """ProgramError when a table has other stages, or some backward passes in two halves and some whole; ScheduleError
    where it cannot run."""
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
