"""Schedules as CSV files in the format of torch.distributed.pipelining: a row per submesh, a cell per task.

A cell is `<stage><F|B|I|W><microbatch>`. Empty cells are idle time and are skipped: the simulator computes idle time.
Communication that torch's lowered files also list (SEND_F, RECV_B, UNSHARD, REDUCE_GRAD, …) is skipped: it follows from
the tasks. A cell `(0F1;1B0)OVERLAP_F_B` holds two tasks. Of a schedule with two copies of the model (DualPipe), which
torch does not have, the second copy's stages follow the first one's; each lists its half of the microbatches.
"""

import csv
import io
import re
from pathlib import Path

from alpa_explore.errors import ScheduleError
from alpa_explore.schedules.simulator.simulate import check
from alpa_explore.schedules.task import LETTERS, Action, Schedule, Task, schedule_of
from alpa_explore.store.read import read_table

_CELL = re.compile(r"(\d{1,6})(F|B|I|W)(\d{1,9})")
_COMMUNICATION = re.compile(r"\d+(UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)\d*")
_OVERLAP = re.compile(r"\((.*)\)OVERLAP_F_B")
_ACTIONS = {letter: action for action, letter in LETTERS.items() if action is not Action.UPDATE}
_MOST_BYTES, _MOST_LINE = 64 * 2**20, 2**23
"""Largest file that is read; a sanity limit."""


def write_csv(schedule: Schedule) -> str:
    """The text of the file; idle cells are not written."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for submesh in range(schedule.num_submeshes):
        writer.writerow(str(task) for task in schedule.order(submesh) if task.action is not Action.UPDATE)
    return out.getvalue()


def parse_csv(text: str) -> Schedule:
    """The schedule in a file's text, checked. ScheduleError for a cell of another form and for a schedule that cannot
    run."""
    orders: list[list[Task]] = []
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error as error:
        raise ScheduleError(
            "The schedule file is not valid CSV",
            found=str(error),
            remedy="Write a row for each submesh, such as 0F0,0F1,0B0,0B1.",
        ) from error
    for number, row in enumerate(rows, start=1):
        order: list[Task] = []
        for column, cell in enumerate(row, start=1):
            order += _tasks(cell.strip(), number, column)
        if order:
            orders.append(order)
    if not orders:
        raise ScheduleError(
            "The schedule file contains no task",
            found=f"{len(text)} characters",
            remedy="Write a row for each submesh, such as 0F0,0F1,0B0,0B1.",
        )
    microbatches = 1 + max(task.microbatch for order in orders for task in order)
    tasks = sum(map(len, orders))
    stages = 1 + max(task.stage for order in orders for task in order)
    if stages * microbatches > tasks:  # before arrays of that size are made
        raise ScheduleError(
            "The schedule file does not list all tasks",
            found=f"{tasks} tasks for {stages} stages and {microbatches} microbatches",
            remedy="Number both from 0 without gaps, and list F and B of every microbatch for every stage.",
        )
    halves = {(2 * task.stage >= stages) == (2 * task.microbatch >= microbatches) for row in orders for task in row}
    two_copies = halves == {True} and stages % 2 == microbatches % 2 == 0
    schedule = schedule_of("csv", orders, microbatches, copies=2 if two_copies else 1)
    check(schedule)
    return schedule


def read_csv(path: str | Path) -> Schedule:
    """The schedule in a file. ScheduleError as for `parse_csv`, and when the file cannot be read."""
    try:
        text = read_table(path, _MOST_BYTES, _MOST_LINE)
    except (OSError, ValueError) as error:
        raise ScheduleError(
            "The schedule file cannot be read",
            found=f"{path}: {getattr(error, 'strerror', None) or error}",
            remedy="Give a CSV file in the format of torch.distributed.pipelining.",
        ) from error
    return parse_csv(text)


def _tasks(cell: str, row: int, column: int) -> list[Task]:
    if not cell or _COMMUNICATION.fullmatch(cell):
        return []
    if both := _OVERLAP.fullmatch(cell):
        return [task for part in both[1].split(";") for task in _tasks(part.strip(), row, column)]
    match = _CELL.fullmatch(cell)
    if match is None:
        raise ScheduleError(
            "A cell of the schedule file is not a task",
            found=f"{cell[:40]!r} in row {row}, column {column}",
            remedy="Write <stage><F, B, I or W><microbatch>, such as 2F0.",
        )
    return [Task(_ACTIONS[match[2]], int(match[1]), int(match[3]))]
