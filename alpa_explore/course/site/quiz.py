"""An exercise as a form that the page grades: what the script needs to compare an answer, and texts as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from alpa_explore.course.ask import NEAR, solution_text
from alpa_explore.course.cards import inline_html, text_html
from alpa_explore.course.definition import Exercise
from alpa_explore.course.grading import mistakes_of, numbers_of, truth_of
from alpa_explore.course.kinds import READING, SCALES, SLIPS, Choice, Items, Kind, Number
from alpa_explore.course.students import EVERYBODY


def quiz_html(exercise: Exercise) -> str:
    """The form, for the numbers of everybody."""
    numbers = numbers_of(exercise, EVERYBODY)
    kind = exercise.kind(numbers)
    key = exercise.id.replace(".", "-")
    hints = "".join(f"<li hidden>{text_html(hint)}</li>" for hint in exercise.hints(numbers))
    question = exercise.question(numbers)
    return (
        f'<form class="quiz" id="quiz-{key}" data-quiz="{exercise.id}" aria-labelledby="title-{key}">'
        f'<h4 id="title-{key}">{exercise.id} {escape(exercise.title)}</h4>'
        f"{text_html(question)}{_field(kind, key)}"
        '<div class="buttons"><button type="submit">Check</button> '
        '<button type="button" class="hint">Hint</button></div>'
        f'<div class="verdict" role="status"></div><ol class="hints">{hints}</ol>'
        f"<details><summary>Show the solution</summary>{text_html(solution_text(exercise, EVERYBODY))}</details></form>"
    )


def quiz_data(exercise: Exercise) -> dict[str, Any]:
    """What the script grades with."""
    numbers, truth = numbers_of(exercise, EVERYBODY), truth_of(exercise, EVERYBODY)
    kind = exercise.kind(numbers)
    return {
        **_kind_data(kind),
        "asks": kind.asks,
        "truth": _plain(kind, truth),
        "why": text_html(exercise.why(numbers, truth)),
        "mistakes": [
            {"answer": _plain(kind, mistake.answer), "reason": text_html(mistake.reason)}
            for mistake in mistakes_of(exercise, EVERYBODY)
        ],
    }


def guess_html() -> str:
    """A field for the guess of a lesson; the script compares it with the card that reveals what came out."""
    return (
        '<form class="guess"><label>Your guess <input name="answer" type="text" autocomplete="off" spellcheck="false">'
        '</label> <button type="submit">Keep</button><div class="verdict" role="status"></div></form>'
    )


def guess_kinds() -> dict[str, Any]:
    """Unit -> what the script reads a guess with."""
    return {unit: {**_kind_data(kind := Number(unit=unit, tolerance=NEAR)), "asks": kind.asks} for unit in SCALES}


def _field(kind: Kind, key: str) -> str:
    if isinstance(kind, Choice):
        options = "".join(
            f'<label><input type="radio" name="answer" value="{escape(option)}"> {inline_html(line)}</label>'
            for option, line in zip(kind.options, kind.lines, strict=True)
        )
        return f"<fieldset><legend>Choose one.</legend>{options}</fieldset>"
    return (
        f'<label class="answer" for="answer-{key}">Your answer: {escape(kind.asks)}</label>'
        f'<input id="answer-{key}" name="answer" type="text" autocomplete="off" spellcheck="false">'
    )


def _kind_data(kind: Kind) -> Mapping[str, Any]:
    if isinstance(kind, Number):
        slips = [{"factor": factor, "name": name} for factor, name in SLIPS.get(kind.unit, ())]
        more = {"slips": slips, "scales": SCALES[kind.unit], "unit": kind.unit, "reading": READING}
        return {"kind": "number", "tolerance": kind.tolerance or 1e-9, **more}
    if isinstance(kind, Items):
        return {"kind": "items", "ordered": kind.ordered, "reading": READING}
    assert isinstance(kind, Choice)
    return {"kind": "choice"}


def _plain(kind: Kind, value: Any) -> Any:
    """A value as JSON; the text of an option that was given by its letter."""
    read = kind.read(value)
    return list(read) if isinstance(read, tuple) else read
