"""Run a notebook in a kernel of its own, and return its cells with their outputs.

After a cell that may show an explorer stands a cell that the reader does not see: it waits for the plan and saves it as
data (`saved_plan`), since a widget shows nothing without a kernel.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import from_dict

from alpa_explore.course.lessons.notebook import Cell, Lesson
from alpa_explore.course.site import tuning
from alpa_explore.errors import CourseError
from alpa_explore.figures.course.interactive import WHOLE

_SAVE = (
    "from alpa_explore.course.site.saved_plan import save_plan\nsave_plan(Out.get(len(In) - 2), {path!r}, {seconds})"
)


_EXPLORER = re.compile(r"\bexplore\(|\bexplorer\b")
"""In a cell that may show one."""
Report = Callable[[Lesson], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCell:
    """A cell and what it showed."""

    cell: Cell
    outputs: Sequence[Mapping[str, Any]] = ()
    plan: Mapping[str, Any] | None = None
    """The plan of the explorer that it showed."""


def run_lessons(lessons: Sequence[Lesson], folder: Path, report: Report) -> list[list[RunCell]]:
    """Run lessons, two at once; `report(lesson)` is called when one is done. CourseError names the first that fails."""
    with ThreadPoolExecutor(tuning.KERNELS) as pool:
        runs: list[Future[list[RunCell]]] = [pool.submit(_reported, lesson, folder, report) for lesson in lessons]
        wait(runs, return_when=FIRST_EXCEPTION)
        for run in runs:
            run.cancel()
        # The error itself rather than that of a run which was cancelled for it.
        for run in runs:
            if run.done() and not run.cancelled() and (error := run.exception()) is not None:
                raise error
        return [run.result() for run in runs]


def _reported(lesson: Lesson, folder: Path, report: Report) -> list[RunCell]:
    run = run_lesson(lesson, folder)
    report(lesson)
    return run


def run_lesson(lesson: Lesson, folder: Path) -> list[RunCell]:
    """Run one lesson; files go to `folder`. CourseError with the cell that fails."""
    place = folder / lesson.name
    place.mkdir(parents=True)
    cells: list[dict[str, Any]] = []
    origin: list[int] = []
    for number, cell in enumerate(lesson.cells):
        cells.append(_new(cell.kind, cell.source, len(cells)))
        origin.append(number)
        if cell.kind == "code" and _EXPLORER.search(cell.source):
            save = _SAVE.format(path=f"plan-{number}.json", seconds=tuning.PLAN_SECONDS)
            cells.append(_new("code", save, len(cells)))
            origin.append(-1)
    notebook: Any = from_dict({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    client = NotebookClient(
        notebook,
        timeout=tuning.CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(place)}},
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],
    )
    try:
        # What native code prints goes past the notebook to the terminal.
        client.execute(env=_environment(folder, place), stdout=subprocess.DEVNULL)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise _failed(lesson, notebook, origin, error) from error
    return [
        RunCell(cell=cell, outputs=_outputs(notebook.cells[origin.index(number)]), plan=_plan(place, number))
        for number, cell in enumerate(lesson.cells)
    ]


def _new(kind: str, source: str, number: int) -> dict[str, Any]:
    code: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source} | code


def _environment(folder: Path, place: Path) -> dict[str, str]:
    """Of the kernel: figures as data, and nothing read from or written to the user's folders.

    What is stored is a lesson's own: a plan says how far a stage was proven, which may be further if others did so.
    """
    own = {name: str(folder / ".jupyter") for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")}
    kept = {"ALPA_EXPLORE_COURSE": str(folder / ".progress"), "ALPA_EXPLORE_CACHE": str(place / ".cache")}
    return {**os.environ, **own, **kept, "PLOTLY_RENDERER": "plotly_mimetype", WHOLE: "1"}


def _outputs(cell: Any) -> Sequence[Mapping[str, Any]]:
    outputs: Sequence[Mapping[str, Any]] = cell.get("outputs", ())
    return outputs


def _plan(place: Path, number: int) -> Mapping[str, Any] | None:
    path = place / f"plan-{number}.json"
    if not path.is_file():
        return None
    plan: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return plan


def _failed(lesson: Lesson, notebook: Any, origin: Sequence[int], error: Exception) -> CourseError:
    """The error of the first cell that did not finish."""
    failed = next(
        (
            place
            for place, cell in enumerate(notebook.cells)
            if any(o["output_type"] == "error" for o in _outputs(cell))
        ),
        None,
    )
    if failed is None:
        what = f"Lesson {lesson.name} did not finish"
        return CourseError(
            what, found=f"{type(error).__name__}: {error}"[:500], remedy="Run its notebook to see where."
        )
    (output, *_) = [o for o in _outputs(notebook.cells[failed]) if o["output_type"] == "error"]
    number = max(origin[: failed + 1])
    first = lesson.cells[number].source.strip().splitlines()[0]
    return CourseError(
        f"Lesson {lesson.name} failed",
        found=f"cell {number + 1} ({first!r}): {output['ename']}: {output['evalue']}"[:600],
        remedy="Run its notebook and mend that cell. Nothing was written.",
    )
