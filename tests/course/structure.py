"""The structure of a lesson: question, guess, figure, explanation, exercises, and what was left out.

    # 06 · Title
    ## Question: how much …?        what this is about, in a sentence or two
    ## Guess                        the reader predicts: a code cell with `my_guess = ...`
    ## Figure                       a figure to touch; `reveal(my_guess, truth, unit)` puts the guess beside it
    ## Explanation                  the formula, and the code that is that formula
      … these four may come again, and a figure and its explanation within them …
    ## Exercises                    a cell for each: `exercise("06.1", ...)`; at the end `points("06")`
    ## What we left out

A heading may go on after a colon.
"""

from __future__ import annotations

import re
from collections import Counter

from alpa_explore.course.lessons.notebook import Cell, Lesson, sections
from alpa_explore.course.registry import EXERCISES, exercises_of

LETTERS = {"Question": "q", "Guess": "g", "Figure": "f", "Explanation": "e", "Exercises": "x", "What we left out": "o"}
_ORDER = re.compile(r"(qg(fe)+)+xo")
_FORMULA = re.compile(r"\$[^$]+\$|^(?: {4}|```)", re.MULTILINE)
LEAST_EXERCISES = 2
FREE_FORM = ("00",)
"""Lessons that are not built this way: the tour."""


def faults(lesson: Lesson) -> list[str]:
    """What is missing in a lesson or out of order, in words; [] where nothing is."""
    found = []
    if not lesson.goals:
        found.append("its metadata has no alpa_course with goals")
    if not lesson.cells or not lesson.cells[0].source.startswith(f"# {lesson.number} · "):
        found.append(f"it does not begin with the heading '# {lesson.number} · …'")
    found += [f"lesson {number} comes later" for number in lesson.prerequisites if number >= lesson.number]
    found += _exercise_faults(lesson)
    return found if lesson.number in FREE_FORM else found + _section_faults(lesson)


def _exercise_faults(lesson: Lesson) -> list[str]:
    asked = Counter(lesson.exercises)
    found = [f"exercise {key} does not exist" for key in asked if key not in EXERCISES]
    found += [f"exercise {key} is asked {count} times" for key, count in asked.items() if count > 1]
    found += [f"exercise {e.id} is not asked" for e in exercises_of(lesson.number) if e.id not in asked]
    found += [f"exercise {key} is of another lesson" for key in asked if not key.startswith(f"{lesson.number}.")]
    return found


def _section_faults(lesson: Lesson) -> list[str]:
    found = []
    if len(lesson.exercises) < LEAST_EXERCISES:
        found.append(f"it has {len(lesson.exercises)} exercises, and should have {LEAST_EXERCISES} at least")
    if [cell.points for cell in lesson.cells if cell.points] != [lesson.number]:
        found.append(f'no cell, or more than one, shows points("{lesson.number}")')
    found += [
        f"the cell of {cell.source.splitlines()[-1]!r} asserts what the reader is to guess"
        for cell in lesson.cells
        if cell.kind == "code" and "reveal(" in cell.source and "\nassert" in cell.source
    ]
    order = ""
    for heading, cells in sections(lesson):
        if not heading:
            continue
        name = heading.partition(":")[0].strip()
        if name not in LETTERS:
            found.append(f"heading {heading!r} is none of {', '.join(LETTERS)}; use ### within a section")
            continue
        order += LETTERS[name]
        found += [f"section {heading!r} {fault}" for fault in _content_faults(name, cells)]
    if not _ORDER.fullmatch(order):
        found.append(f"its sections are not in the order of {', '.join(LETTERS)}")
    return found


def _content_faults(name: str, cells: list[Cell]) -> list[str]:
    code = [cell for cell in cells if cell.kind == "code"]
    words = "\n".join(cell.source for cell in cells if cell.kind == "markdown")
    if name in ("Guess", "Figure", "Exercises") and not code:
        return ["has no code"]
    if name == "Explanation":
        return (["has no code that is its formula"] if not code else []) + (
            ["has no formula"] if not _FORMULA.search(words) else []
        )
    if name == "Question" and "?" not in words:
        return ["asks nothing"]
    return []
