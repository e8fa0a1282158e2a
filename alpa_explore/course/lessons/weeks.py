"""The weeks of a course, read from `weeks.toml`: the lessons of each, and an essay with its model answer."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from alpa_explore.course.coding.task import CodingTask, tasks
from alpa_explore.course.lessons.notebook import TASK_MINUTES, Lesson
from alpa_explore.course.registry import exercises_of

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
