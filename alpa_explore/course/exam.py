"""For lecturers: exam questions whose draws are fixed by seeds; the answers go to a file of their own.

Questions are the exercises, the functions to write and the essays of the lessons that are named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from alpa_explore.course.ask import question_text, solution_text
from alpa_explore.course.coding.task import tasks
from alpa_explore.course.definition import Exercise
from alpa_explore.course.kinds import Choice
from alpa_explore.course.lessons.sync import weeks
from alpa_explore.course.registry import EXERCISES, for_student
from alpa_explore.errors import OptionError
from alpa_explore.store.write import write_text

_SEED = re.compile(r"[\w-]+")
"""It is part of the names of files."""


def write_exam(folder: Path, lessons: Sequence[str], seeds: Sequence[str]) -> list[Path]:
    """For each seed the questions of these lessons and, in another file, the answers; both as Markdown. Returns paths.

    OptionError for a seed that cannot be part of a file's name, PlanFileError where the folder cannot be written.
    """
    for seed in seeds:
        if not _SEED.fullmatch(seed):
            raise OptionError(
                "A seed is part of the name of a file", found=repr(seed), remedy="Use letters, digits, - and _."
            )
    coding = [task for task in tasks().values() if task.lesson in lessons]
    essays = [week for week in weeks() if set(week.lessons) & set(lessons)]
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for seed in seeds:
        asked = [for_student(exercise, seed) for exercise in EXERCISES.values() if exercise.lesson in lessons]
        count = f"{len(asked)} questions, {len(coding)} functions to write and {len(essays)} essays"
        head = f"{count}. The numbers are those of student({seed!r})."
        questions = [f"# Questions {seed}\n\n{head}", *map(_question, asked)]
        questions += [f"## {t.lesson} {t.title} (2 points)\n\n{t.statement}\n\n```\n{t.starter}\n```" for t in coding]
        questions += [f"## Essay (3 points)\n\n{week.essay}" for week in essays]
        answers = [f"# Answers {seed}\n\n{head} Not for students."]
        answers += [f"## {e.id} {e.title}\n\n{solution_text(e).strip()}{_mistakes(e)}" for e in asked]
        answers += [f"## {t.lesson} {t.title}\n\n```\n{t.right}\n```" for t in coding]
        answers += [f"## Essay\n\n{week.essay}\n\nA good essay: {week.answer}" for week in essays]
        for name, parts in (("questions", questions), ("answers", answers)):
            paths.append(folder / f"{name}-{seed}.md")
            write_text(paths[-1], "\n\n".join(parts) + "\n", "The exam")
    return paths


def _mistakes(exercise: Exercise) -> str:
    """Wrong answers with what was overlooked, for those who give a part of the points."""
    kind = exercise.kind
    lines = [f"- {kind.show(kind.read(one.answer))}: {one.reason.strip()}" for one in exercise.mistakes]
    return "\n\nUsual mistakes:\n\n" + "\n".join(lines)


def _question(exercise: Exercise) -> str:
    form = "" if isinstance(exercise.kind, Choice) else f"\n\nAnswer: {exercise.kind.asks}"
    points = f"{exercise.points} point{'s' * (exercise.points > 1)}"
    return f"## {exercise.id} {exercise.title} ({points})\n\n{question_text(exercise).strip()}{form}"
