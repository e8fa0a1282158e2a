"""Schedules as CSV files in the form of torch.distributed.pipelining: a row for each submesh, a cell for each task.

A cell is `<stage><F|B|I|W><microbatch>`; an empty one is idle time, which a simulator finds for itself. Communication
that torch's lowered files also list (SEND_F, RECV_B, UNSHARD, REDUCE_GRAD, …) is left out: here it follows from the
tasks. A cell `(0F1;1B0)OVERLAP_F_B` holds two tasks.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from alpa_explore.errors import ScheduleError
from alpa_explore.schedules.simulator.check import check
from alpa_explore.schedules.task import LETTERS, Action, Schedule, Task, schedule_of

_CELL = re.compile(r"(\d{1,6})(F|B|I|W)(\d{1,9})")
_COMMUNICATION = re.compile(r"\d+(UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)\d*")
_OVERLAP = re.compile(r"\((.*)\)OVERLAP_F_B")
_ACTIONS = {letter: action for action, letter in LETTERS.items() if action is not Action.UPDATE}
_MOST_BYTES = 64 * 2**20


def write_csv(schedule: Schedule) -> str:
    """The text of the file; idle cells are not written."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for submesh in range(schedule.num_submeshes):
        writer.writerow(str(task) for task in schedule.order(submesh) if task.action is not Action.UPDATE)
    return out.getvalue()


def parse_csv(text: str, name: str = "csv") -> Schedule:
    """The schedule of a file's text, checked. ScheduleError where a cell is none of the above or it cannot run."""
    orders: list[list[Task]] = []
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        order: list[Task] = []
        for column, cell in enumerate(row, start=1):
            order += _tasks(cell.strip(), number, column)
        if order:
            orders.append(order)
    if not orders:
        raise ScheduleError(
            "The schedule file holds no task", found=f"{len(text)} characters", remedy="A row is like 0F0,0F1,0B0,0B1."
        )
    microbatches = 1 + max(task.microbatch for order in orders for task in order)
    tasks = sum(map(len, orders))
    stages = 1 + max(task.stage for order in orders for task in order)
    if stages * microbatches > tasks:  # before tables of that size are made
        raise ScheduleError(
            "The schedule file leaves tasks out",
            found=f"{tasks} tasks for {stages} stages and {microbatches} microbatches",
            remedy="Number both from 0, without gaps; every stage needs F and B of every microbatch.",
        )
    schedule = schedule_of(name, orders, microbatches)
    check(schedule)
    return schedule


def read_csv(path: str | Path) -> Schedule:
    """The schedule of a file. ScheduleError as `parse_csv`, and where the file cannot be read."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read(_MOST_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ScheduleError(
            "The schedule file cannot be read", found=str(error), remedy="Give a CSV file of torch's form."
        ) from error
    if len(text) > _MOST_BYTES:
        raise ScheduleError(
            "The schedule file is too large", found=f"more than {_MOST_BYTES >> 20} MiB", remedy="Give a smaller one."
        )
    return parse_csv(text)


def _tasks(cell: str, row: int, column: int) -> list[Task]:
    if not cell or _COMMUNICATION.fullmatch(cell):
        return []
    if both := _OVERLAP.fullmatch(cell):
        return [task for part in both[1].split(";") for task in _tasks(part.strip(), row, column)]
    found = _CELL.fullmatch(cell)
    if found is None:
        raise ScheduleError(
            "A cell of the schedule file is not a task",
            found=f"{cell[:40]!r} in row {row}, column {column}",
            remedy="Cells are <stage><F, B, I or W><microbatch>, like 2F0.",
        )
    return [Task(_ACTIONS[found[2]], int(found[1]), int(found[3]))]
