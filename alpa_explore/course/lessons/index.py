"""The table of the lessons in index.ipynb: between two comments, made from what the lessons say of themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence

from alpa_explore.course.lessons.notebook import Lesson
from alpa_explore.course.registry import exercises_of

BEGIN, END = "<!-- lessons -->", "<!-- end of lessons -->"
_BETWEEN = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)


def with_table(text: str, lessons: Sequence[Lesson]) -> str:
    """`text` with the table of these lessons between the comments; unchanged where it has none."""
    return _BETWEEN.sub(lambda _: f"{BEGIN}\n\n{lessons_table(lessons)}\n\n{END}", text)


def lessons_table(lessons: Sequence[Lesson]) -> str:
    """The lessons with minutes, goals, exercises, and the lessons that each builds on, as a Markdown table."""
    rows = ["| lesson | minutes | after it you can | builds on | exercises |", "|---|--:|---|---|--:|"]
    for lesson in lessons:
        goals = "; ".join(goal.rstrip(".") for goal in lesson.goals) or "–"
        minutes = str(lesson.minutes) if lesson.minutes else "–"
        rows.append(
            f"| [{lesson.number} · {lesson.title}]({lesson.path.name}) | {minutes} | {goals} | "
            f"{', '.join(lesson.prerequisites) or '–'} | {len(exercises_of(lesson.number))} |"
        )
    return "\n".join([*rows, "", f"Together {sum(lesson.minutes for lesson in lessons)} minutes."])
