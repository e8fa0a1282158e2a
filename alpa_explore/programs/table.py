"""The table of tasks that a program follows: found and checked without lowering anything.

A program runs one stage of the plan on each submesh, so it follows a table with as many stages as the plan has. Its
backward passes are all whole (B) or all in two halves (I and W): a task is written once for all microbatches.
"""

from __future__ import annotations

from alpa_explore.errors import ProgramError
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.timeline import planned_schedule
from alpa_explore.schedules.catalog import build_schedule
from alpa_explore.schedules.check import check as check_schedule
from alpa_explore.schedules.task import Action, Schedule


def program_schedule(plan: Plan, schedule: Schedule | str | None = None) -> Schedule:
    """What a run of `plan` follows: a table, one by name for the plan's B, or the plan's own unless given.

    Raises as `check_table`.
    """
    wanted = planned_schedule(plan) if schedule is None else schedule
    return check_table(wanted, len(plan.stages), plan.options.num_microbatches)


def check_table(schedule: Schedule | str, num_stages: int, num_microbatches: int) -> Schedule:
    """The table, or the one of that name. ProgramError when it has other stages, or some backward passes in two halves
    and some whole; UnknownNameError for a name that is none; ScheduleError where it does not exist or cannot run."""
    if isinstance(schedule, str):
        schedule = build_schedule(schedule, num_stages, num_microbatches)
    if schedule.num_stages != num_stages:
        raise ProgramError(
            "The schedule has other stages than the plan",
            found=f"{schedule.num_stages} in {schedule.name}, {num_stages} in the plan",
            remedy="Choose one with a stage on each submesh, such as '1f1b', or make one for this plan.",
        )
    if {Action.BACKWARD, Action.BACKWARD_INPUT} <= set(schedule.actions.tolist()):
        raise ProgramError(
            "A program runs all backward passes whole, or all in two halves", found=f"both in {schedule.name}",
            remedy="Write the whole ones as an I with a W behind it.",
        )  # fmt: skip
    check_schedule(schedule)
    return schedule
