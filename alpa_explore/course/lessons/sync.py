"""Bring what follows from the lessons up to date: nbgrader's metadata of graded cells, minutes, tables, roads. The
weeks of a course are read from `weeks.toml`: the lessons of each, and an essay with its model answer.

The cell with `points("06")` is locked and graded: nbgrader takes the number that it shows as its points, and runs it in
the session in which the answers were given. All other cells are the student's and have no metadata: nbgrader empties
cells marked as solutions when it makes the version for students, and warns of cells that are marked as nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from alpa_explore.course.coding.task import CodingTask, tasks
from alpa_explore.course.lessons.notebook import (
    EXERCISE_MINUTES,
    FIGURE_MINUTES,
    TASK_MINUTES,
    WORDS_A_MINUTE,
    Cell,
    Lesson,
    notebook_text,
    read_lessons,
    read_notebook,
    source_of,
)
from alpa_explore.course.registry import exercises_of
from alpa_explore.store.write import write_text

ESSAY_MINUTES = 40
"""For half a page: an assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """A week of the course."""

    lessons: tuple[str, ...]
    """Their numbers."""
    essay: str
    answer: str
    """What a good essay says."""

    @property
    def tasks(self) -> list[CodingTask]:
        """The functions to write."""
        return [task for task in tasks().values() if task.lesson in self.lessons]

    def minutes(self, own: Sequence[Lesson]) -> int:
        """Of a student, for its lessons, the functions to write and the essay."""
        return sum(lesson.minutes for lesson in own) + TASK_MINUTES * len(self.tasks) + ESSAY_MINUTES


@cache
def weeks() -> tuple[Week, ...]:
    """All weeks, in order."""
    read = tomllib.loads((files(__package__) / "weeks.toml").read_text(encoding="utf-8"))["week"]
    return tuple(
        Week(lessons=tuple(one["lessons"]), essay=one["essay"], answer=" ".join(one["answer"].split())) for one in read
    )


def weeks_table(lessons: Sequence[Lesson]) -> str:
    """Week, lessons, minutes of the lessons and of all, exercises, coding tasks and essay, as a Markdown table."""
    known = {lesson.number: lesson for lesson in lessons}
    rows = [
        "| week | lessons | minutes | with homework | exercises | to write | an essay of half a page |",
        "|--:|---|--:|--:|--:|---|---|",
    ]
    for number, week in enumerate(weeks(), start=1):
        own = [known[name] for name in week.lessons if name in known]
        links = ", ".join(f"[{lesson.number} · {lesson.title}]({lesson.path.name})" for lesson in own)
        coding = ", ".join(f"`{task.name}`" for task in week.tasks) or "–"
        count = sum(len(exercises_of(name)) for name in week.lessons)
        minutes = f"{sum(lesson.minutes for lesson in own)} | {week.minutes(own)}"
        rows.append(f"| {number} | {links} | {minutes} | {count} | {coding} | {week.essay} |")
    return "\n".join(rows)


PAGES = ("index.ipynb", "lecturer.ipynb")
"""Those that may have a table."""
BEGIN, END = "<!-- lessons -->", "<!-- end of lessons -->"
_BETWEEN = re.compile("<!-- (lessons|weeks) -->.*<!-- end of \\1 -->", re.DOTALL)
_MINUTES = re.compile(r"(?<=^\*)\d+ minutes(?=\. )", re.MULTILINE)
"""At the head of a lesson."""
_ROAD = re.compile(r"(?<=, )\d+ minutes: (?P<lessons>\d\d(?:, \d\d)+)\.")
"""Of the index."""
KEY = "nbgrader"
_VERSION = 3
"""Of nbgrader's cell metadata schema."""


def out_of_date(folder: Path) -> dict[Path, str]:
    """The notebooks of a folder that should have another text -> that text."""
    lessons = read_lessons(folder)
    texts = {lesson.path: _marked(lesson) for lesson in lessons}
    texts |= {page: _indexed(page, lessons) for name in PAGES if (page := folder / name).is_file()}
    return {path: text for path, text in texts.items() if text != notebook_text(read_notebook(path))}


def sync(folder: Path) -> list[Path]:
    """Write those notebooks, and return their paths."""
    changes = out_of_date(folder)
    for path, text in changes.items():
        write_text(path, text, "The notebook")
    return list(changes)


def _marked(lesson: Lesson) -> str:
    notebook = read_notebook(lesson.path)
    for raw, cell in zip(notebook["cells"], lesson.cells, strict=True):
        metadata: dict[str, Any] = {key: value for key, value in raw.get("metadata", {}).items() if key != KEY}
        if (mark := nbgrader_metadata(cell)) is not None:
            metadata[KEY] = dict(mark)
        raw["metadata"] = metadata
    return _rewritten(notebook, lambda text: _MINUTES.sub(f"{lesson.minutes} minutes", text))


def _indexed(path: Path, lessons: Sequence[Lesson]) -> str:
    return _rewritten(read_notebook(path), lambda text: with_table(text, lessons))


def _rewritten(notebook: dict[str, Any], new: Callable[[str], str]) -> str:
    """The text of a notebook whose own texts are made anew."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown" and (text := new(source_of(cell))) != source_of(cell):
            cell["source"] = text if isinstance(cell["source"], str) else text.splitlines(keepends=True)
    return notebook_text(notebook)


def with_table(text: str, lessons: Sequence[Lesson]) -> str:
    """`text` with the table of these lessons, or of weeks, between the comments, and the minutes of roads of them."""
    tables = {"lessons": lessons_table, "weeks": weeks_table}
    text = _BETWEEN.sub(lambda m: f"<!-- {m[1]} -->\n\n{tables[m[1]](lessons)}\n\n<!-- end of {m[1]} -->", text)
    known = {lesson.number: lesson.minutes for lesson in lessons}

    def road(match: re.Match[str]) -> str:
        names = match["lessons"].split(", ")
        return (
            f"{sum(map(known.__getitem__, names))} minutes: {match['lessons']}." if {*names} <= {*known} else match[0]
        )

    return _ROAD.sub(road, text)


def lessons_table(lessons: Sequence[Lesson]) -> str:
    """The lessons with minutes, goals, exercises, and the lessons that each builds on, as a Markdown table."""
    rows = ["| lesson | minutes | after it you can | builds on | exercises |", "|---|--:|---|---|--:|"]
    for lesson in lessons:
        goals = "; ".join(goal.rstrip(".") for goal in lesson.goals) or "–"
        rows.append(
            f"| [{lesson.number} · {lesson.title}]({lesson.path.name}) | {lesson.minutes} | {goals} | "
            f"{', '.join(lesson.prerequisites) or '–'} | {len(exercises_of(lesson.number))} |"
        )
    count = sum(task.lesson == lesson.number for lesson in lessons for task in tasks().values())
    together = (
        f"Together {sum(lesson.minutes for lesson in lessons)} minutes: to read at {WORDS_A_MINUTE} words a minute, "
        f"with {FIGURE_MINUTES} minutes for a figure, and {' or '.join(map(str, EXERCISE_MINUTES.values()))} for an "
        "exercise in one step or in several. The functions to write, "
        f"{count} of them, take about {TASK_MINUTES} minutes more each."
    )
    return "\n".join([*rows, "", together])


def nbgrader_metadata(cell: Cell) -> Mapping[str, Any] | None:
    """The metadata that a cell should have under 'nbgrader'; None for none."""
    if not cell.points:
        return None
    return {
        "schema_version": _VERSION,
        "grade_id": f"points-{cell.points}",
        "grade": True,
        "solution": False,
        "locked": True,
        "task": False,
        "cell_type": "code",
        "points": sum(exercise.points for exercise in exercises_of(cell.points)),
    }
