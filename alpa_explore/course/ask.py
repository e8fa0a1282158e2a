"""The functions that a notebook calls. None of them raises for what a student types: it answers with a hint."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from functools import wraps
from html import escape
from typing import Any

from alpa_explore.course import students
from alpa_explore.course.cards import Card, Fold, text_html
from alpa_explore.course.coding.sandbox import check_solution
from alpa_explore.course.coding.task import CodingTask, task_of, tasks
from alpa_explore.course.definition import Exercise
from alpa_explore.course.kinds import Choice, Number, Refusal
from alpa_explore.course.registry import EXERCISES, exercise_of, exercises_of, for_student, grade
from alpa_explore.course.students import Student
from alpa_explore.errors import UnknownNameError

NEAR = 0.1
"""Relative distance up to which a guess was good."""
TRIES = 3
"""Wrong solutions of a coding task after which one is shown."""


class Points(int):
    """A number of points. nbgrader reads it as the points of a cell; a notebook shows of how many."""

    lesson: str
    possible: int

    def _repr_html_(self) -> str:
        return text_html(f"**{int(self)} of {self.possible} points** in lesson {escape(self.lesson)}.")


def student(name: object = students.EVERYBODY) -> Card:
    """Say who answers: the numbers of all exercises are drawn from the name, and progress is kept under it."""
    given = "" if name is None or name is ... else str(name).strip()
    who = students.sit_down(given or students.EVERYBODY)
    solved = sum(who.of(key).solved for key in EXERCISES)
    who.save()
    kept = "" if who.kept else " Progress is kept in this session only: the user's folder cannot be written."
    counts = f"{solved} of {len(EXERCISES)} exercises are solved."
    text = f"{counts} The numbers of all exercises are drawn for this name.{kept}"
    return Card("plain", f"Student {who.name}", text)


def _answers_to_a_name(call: Callable[..., Card]) -> Callable[..., Card]:
    """A function that says which names are near one that is not known."""

    @wraps(call)
    def answered(*arguments: Any, **named: Any) -> Card:
        try:
            return call(*arguments, **named)
        except UnknownNameError as error:
            return Card("hint", f"{error.what}: {error.found}", error.remedy)

    return answered


@_answers_to_a_name
def exercise(name: object, answer: object = ..., *more: object) -> Card:
    """Show an exercise, or grade an answer to it.

    `name` is lesson and number, such as "03.1". Without an answer, or with `...`, the question is shown with the
    numbers of this student. `more` are further items of an answer that is a list.
    """
    who = students.current()
    asked = for_student(exercise_of(name), who.name)
    attempts = who.of(asked.id)
    if answer is ... or answer is None:
        title = f"{asked.id} {asked.title} · {asked.grade}{' (solved)' if attempts.solved else ''}"
        calls = f"`exercise({asked.id!r}, …)`. `hint({asked.id!r})` helps, `solution({asked.id!r})` tells."
        return Card("question", title, f"{question_text(asked)}\n\nAnswer with {asked.kind.asks}: {calls}")
    verdict = grade(asked, (answer, *more) if more else answer)
    if verdict.state != "hint":
        attempts.tries += not attempts.solved
        attempts.solved |= verdict.state == "right"
        attempts.wrong = verdict.value if verdict.state == "wrong" else None
        who.save()
    text = f"{verdict.text} `hint({asked.id!r})` helps." if verdict.state == "wrong" else verdict.text
    words = {"right": "right", "wrong": "not yet", "hint": "not marked"}[verdict.state]
    return Card(verdict.state, f"{asked.id} {asked.title}: {words}", text.strip())


@_answers_to_a_name
def hint(name: object) -> Card:
    """What was overlooked in the last answer, if it was wrong, and the next hint; after the last one, all of them."""
    who = students.current()
    asked = for_student(exercise_of(name), who.name)
    attempts, hints = who.of(asked.id), asked.hints
    attempts.hints = min(attempts.hints + 1, len(hints))
    who.save()
    shown = [f"{place}. {text}" for place, text in enumerate(hints[: attempts.hints], start=1)]
    if attempts.wrong is not None and (verdict := grade(asked, attempts.wrong)).state == "wrong":
        said = verdict.text or "it is another."
        shown.insert(0, f"Your last answer, {asked.kind.show(verdict.value)}: {said}")
    more = f"`hint({asked.id!r})` again shows the next one." if attempts.hints < len(hints) else "That was the last."
    return Card("hint", f"{asked.id} {asked.title}: hints", "\n\n".join([*shown, more]))


@_answers_to_a_name
def solution(name: object) -> Card:
    """The solution of an exercise with the numbers of this student, behind a fold."""
    asked = for_student(exercise_of(name), students.current().name)
    shown = Fold("Show the solution", solution_text(asked))
    return Card("solution", f"{asked.id} {asked.title}: solution", "", folds=[shown])


def solution_text(asked: Exercise) -> str:
    """The answer, why it is right, and the code that computes it."""
    return f"**Answer: {asked.kind.show(asked.truth)}**\n\n{asked.why}\n\n```\n{asked.code}```"


def question_text(asked: Exercise) -> str:
    """The question, and its options."""
    kind = asked.kind
    options = "\n\n" + "\n".join(f"- {line}" for line in kind.lines) if isinstance(kind, Choice) else ""
    return f"{asked.question}{options}"


@_answers_to_a_name
def task(name: object = ..., solution: object = ...) -> Card:
    """Show a coding task, or check a solution to it: the function itself, or its code as text.

    `task("ring-all-reduce")` shows what to write, `task("ring-all-reduce", chunk_to_send)` runs it, in a process of its
    own with a time limit. Without a name, all tasks are listed.
    """
    who = students.current()
    if name is ... or name is None:
        lines = [f"- {t.lesson}: `{t.name}`{' ✓' * who.of(t.name).solved}, {t.title}" for t in tasks().values()]
        return Card("plain", "Coding tasks", "\n".join(lines))
    asked = task_of(name)
    if solution is ... or solution is None:
        call = f"Write it in a cell of its own, then `task({asked.name!r}, {asked.function})` runs it."
        text = f"{asked.statement}\n\n```\n{asked.starter}\n```\n\n{call}"
        return Card("question", f"{asked.lesson} {asked.title}", text)
    code = _code_of(solution)
    if not code:
        text = f"Give the function, `task({asked.name!r}, {asked.function})`, or its code as text. Of one that was not "
        return Card("hint", f"{asked.title}: not checked", f"{text}written in a cell or a file there is no code.")
    return _checked(asked, code, who)


def _code_of(solution: object) -> str:
    """The code of a function, '' where it is not known."""
    if isinstance(solution, str):
        return solution
    try:
        return textwrap.dedent(inspect.getsource(solution)) if inspect.isfunction(solution) else ""
    except OSError:
        return ""


def _checked(asked: CodingTask, code: str, who: Student) -> Card:
    found, attempts = check_solution(asked, code), who.of(asked.name)
    attempts.tries += not attempts.solved
    attempts.solved |= found.right
    who.save()
    text = found.wrong or "The check found no difference."
    if found.printed:
        text += f"\n\nIt printed:\n\n```\n{found.printed}\n```"
    shown = found.right or attempts.tries >= TRIES
    folds = [Fold("One way to write it", f"```\n{asked.right}\n```")] if shown else []
    words = "right" if found.right else "not yet"
    return Card("right" if found.right else "wrong", f"{asked.title}: {words}", text, folds=folds)


def points(lesson: object) -> Points | Card:
    """The points of this student in a lesson ("03"): those of its solved exercises."""
    who = students.current()
    asked = exercises_of(str(lesson))
    if not asked:
        lessons = dict.fromkeys(e.lesson for e in EXERCISES.values())
        title = f"There is no lesson {str(lesson)!r} with exercises"
        return Card("hint", title, f"Known: {', '.join(lessons)}.")
    made = Points(sum(e.points for e in asked if who.of(e.id).solved))
    made.lesson, made.possible = str(lesson), sum(e.points for e in asked)
    return made


def reveal(guess: object, truth: float, unit: str = "", *, what: str = "It") -> Card:
    """A guess beside what came out: `reveal(my_guess, plan.predicted.bubble_fraction, "share", what="The bubble")`.

    `unit` is one of `kinds.Number`. With `...` for the guess, the truth is behind a fold.
    """
    kind = Number(unit=unit, tolerance=NEAR)
    shown = f"{what} is {kind.show(truth)}."
    if guess is ... or guess is None:
        folds = [Fold("Show it without a guess", shown)]
        data = {"truth": repr(float(truth)), "unit": unit, "shown": shown}
        return Card(
            "plain", f"{what}: guess first", "A number is remembered that surprised you.", folds=folds, data=data
        )
    value = kind.read(guess)
    if isinstance(value, Refusal):
        return Card("hint", "Not a guess of this kind", value.hint)
    if slip := kind.slip(value, truth):
        return Card("hint", "Another unit", slip.replace("This exercise asks for", "Guess"))
    own = f"Your guess: {kind.show(value)}."
    if kind.same(value, truth):
        return Card("right", f"You guessed well. {shown}", own)
    return Card("plain", shown, f"{own} {kind.side(value, truth)}")
