"""The functions that a notebook calls. None of them raises for what a student types: it answers with a hint."""

from __future__ import annotations

import inspect
import textwrap
from html import escape

from alpa_explore.course import students
from alpa_explore.course.cards import Card, Fold, text_html
from alpa_explore.course.coding.sandbox import check_solution
from alpa_explore.course.coding.task import CodingTask, task_of, tasks
from alpa_explore.course.definition import Exercise
from alpa_explore.course.kinds import Choice, Number, Refusal
from alpa_explore.course.registry import EXERCISES, exercise_of, exercises_of, grade, numbers_of, truth_of
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
    return Card(
        look="plain",
        title=f"Student {who.name}",
        text=f"{solved} of {len(EXERCISES)} exercises are solved. The numbers of all exercises are drawn for this "
        f"name.{kept}",
    )


def exercise(name: object, answer: object = ..., *more: object) -> Card:
    """Show an exercise, or grade an answer to it.

    `name` is lesson and number, such as "03.1". Without an answer, or with `...`, the question is shown with the
    numbers of this student. `more` are further items of an answer that is a list.
    """
    try:
        asked = exercise_of(name)
    except UnknownNameError as error:
        return _unknown(error)
    who = students.current()
    if answer is ... or answer is None:
        return _question(asked, who)
    verdict = grade(asked, who.name, (answer, *more) if more else answer)
    if verdict.state != "hint":
        attempts = who.of(asked.id)
        attempts.tries += not attempts.solved
        attempts.solved |= verdict.state == "right"
        attempts.wrong = verdict.value if verdict.state == "wrong" else None
        who.save()
    text = f"{verdict.text} `hint({asked.id!r})` helps." if verdict.state == "wrong" else verdict.text
    words = {"right": "right", "wrong": "not yet", "hint": "not marked"}[verdict.state]
    return Card(look=verdict.state, title=f"{asked.id} {asked.title}: {words}", text=text.strip())


def hint(name: object) -> Card:
    """What was overlooked in the last answer, if it was wrong, and the next hint; after the last one, all of them."""
    try:
        asked = exercise_of(name)
    except UnknownNameError as error:
        return _unknown(error)
    who = students.current()
    numbers = numbers_of(asked, who.name)
    attempts, hints = who.of(asked.id), asked.hints(numbers)
    attempts.hints = min(attempts.hints + 1, len(hints))
    who.save()
    shown = [f"{place}. {text}" for place, text in enumerate(hints[: attempts.hints], start=1)]
    if attempts.wrong is not None and (verdict := grade(asked, who.name, attempts.wrong)).state == "wrong":
        shown.insert(
            0, f"Your last answer, {asked.kind(numbers).show(verdict.value)}: {verdict.text or 'it is another.'}"
        )
    more = f"`hint({asked.id!r})` again shows the next one." if attempts.hints < len(hints) else "That was the last."
    return Card(look="hint", title=f"{asked.id} {asked.title}: hints", text="\n\n".join([*shown, more]))


def solution(name: object) -> Card:
    """The solution of an exercise with the numbers of this student, behind a fold."""
    try:
        asked = exercise_of(name)
    except UnknownNameError as error:
        return _unknown(error)
    shown = Fold(summary="Show the solution", text=solution_text(asked, students.current().name))
    return Card(look="solution", title=f"{asked.id} {asked.title}: solution", text="", folds=[shown])


def solution_text(asked: Exercise, seed: str) -> str:
    """The answer, why it is right, and the code that computes it."""
    numbers, truth = numbers_of(asked, seed), truth_of(asked, seed)
    shown = asked.kind(numbers).show(truth)
    return f"**Answer: {shown}**\n\n{asked.why(numbers, truth)}\n\n```\n{asked.code(numbers)}```"


def question_text(asked: Exercise, seed: str) -> str:
    """The question, its options, and what kind of answer it wants."""
    numbers = numbers_of(asked, seed)
    kind = asked.kind(numbers)
    options = "\n\n" + "\n".join(f"- {line}" for line in kind.lines) if isinstance(kind, Choice) else ""
    return f"{asked.question(numbers)}{options}"


def task(name: object = ..., solution: object = ...) -> Card:
    """Show a coding task, or check a solution to it: the function itself, or its code as text.

    `task("ring-all-reduce")` shows what to write, `task("ring-all-reduce", chunk_to_send)` runs it, in a process of its
    own with a time limit. Without a name, all tasks are listed.
    """
    who = students.current()
    if name is ... or name is None:
        lines = [f"- {t.lesson}: `{t.name}`{' ✓' * who.of(t.name).solved}, {t.title}" for t in tasks().values()]
        return Card(look="plain", title="Coding tasks", text="\n".join(lines))
    try:
        asked = task_of(name)
    except UnknownNameError as error:
        return _unknown(error)
    if solution is ... or solution is None:
        call = f"Write it in a cell of its own, then `task({asked.name!r}, {asked.function})` runs it."
        code = f"```\n{asked.starter}\n```"
        return Card(
            look="question", title=f"{asked.lesson} {asked.title}", text=f"{asked.statement}\n\n{code}\n\n{call}"
        )
    code = _code_of(solution)
    if not code:
        return Card(
            look="hint",
            title=f"{asked.title}: not checked",
            text=f"Give the function, `task({asked.name!r}, {asked.function})`, or its code as text. Of one that "
            "was not written in a cell or a file there is no code.",
        )
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
    folds = [Fold(summary="One way to write it", text=f"```\n{asked.right}\n```")] if shown else []
    words = "right" if found.right else "not yet"
    return Card(look="right" if found.right else "wrong", title=f"{asked.title}: {words}", text=text, folds=folds)


def points(lesson: object) -> Points | Card:
    """The points of this student in a lesson ("03"): those of its solved exercises."""
    who = students.current()
    asked = exercises_of(str(lesson))
    if not asked:
        lessons = dict.fromkeys(e.lesson for e in EXERCISES.values())
        return Card(
            look="hint",
            title=f"There is no lesson {str(lesson)!r} with exercises",
            text=f"Known: {', '.join(lessons)}.",
        )
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
        return Card(
            look="plain",
            title=f"{what}: guess first",
            text="A number is remembered that surprised you.",
            folds=[Fold(summary="Show it without a guess", text=shown)],
            data={"truth": repr(float(truth)), "unit": unit, "shown": shown},
        )
    value = kind.read(guess)
    if isinstance(value, Refusal):
        return Card(look="hint", title="Not a guess of this kind", text=value.hint)
    if slip := kind.slip(value, truth):
        return Card(look="hint", title="Another unit", text=slip.replace("This exercise asks for", "Guess"))
    if kind.same(value, truth):
        return Card(look="right", title=f"You guessed well. {shown}", text=f"Your guess: {kind.show(value)}.")
    return Card(look="plain", title=shown, text=f"Your guess: {kind.show(value)}. {kind.side(value, truth)}")


def _question(asked: Exercise, who: Student) -> Card:
    kind = asked.kind(numbers_of(asked, who.name))
    solved = " (solved)" if who.of(asked.id).solved else ""
    return Card(
        look="question",
        title=f"{asked.id} {asked.title} · {asked.grade}{solved}",
        text=f"{question_text(asked, who.name)}\n\nAnswer with {kind.asks}: `exercise({asked.id!r}, …)`. "
        f"`hint({asked.id!r})` helps, `solution({asked.id!r})` tells.",
    )


def _unknown(error: UnknownNameError) -> Card:
    return Card(look="hint", title=f"{error.what}: {error.found}", text=error.remedy)
