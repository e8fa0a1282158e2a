"""All exercises by their id, what a mistyped id means, and an answer to a verdict: right or wrong, and why; or a hint,
where it is no answer of this kind."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.resources import files
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from alpa_explore.course import exercises
from alpa_explore.course.definition import Exercise
from alpa_explore.course.kinds import Refusal
from alpa_explore.course.students import EVERYBODY
from alpa_explore.errors import UnknownNameError, nearest_names

_NUMBER = re.compile(r"(\d{1,2})\.(\d{1,2})")


def _by_id() -> Mapping[str, Exercise]:
    found: dict[str, Exercise] = {}
    for _, name, _ in iter_modules(exercises.__path__):
        tables = tomllib.loads((files(exercises) / f"{name}.toml").read_text(encoding="utf-8"))
        names = vars(import_module(f"{exercises.__name__}.{name}"))
        found |= {key: Exercise(key, table, names, EVERYBODY) for key, table in tables.items()}
    lesson, place = 0, 0
    for key in sorted(found):
        lesson, place = (lesson, place + 1) if key.startswith(f"{lesson:02}.") else (lesson + 1, 1)
        assert key == f"{lesson:02}.{place}", f"exercise {key} should be {lesson:02}.{place}"
    return MappingProxyType({key: found[key] for key in sorted(found)})


EXERCISES: Mapping[str, Exercise] = _by_id()
"""Id -> exercise with the numbers of everybody, in the order of the course."""


def exercise_of(name: object) -> Exercise:
    """The exercise of an id; '6.2' and 6.2 mean '06.2'. UnknownNameError, with the nearest ids, where there is none."""
    text = str(name).strip()
    if number := _NUMBER.fullmatch(text):
        text = f"{int(number[1]):02}.{int(number[2])}"
    if text in EXERCISES:
        return EXERCISES[text]
    same_lesson = [e for e in EXERCISES if e.startswith(text.partition(".")[0].zfill(2) + ".")]
    remedy = f"This lesson has {', '.join(same_lesson)}." if same_lesson else nearest_names(text, EXERCISES)
    raise UnknownNameError("There is no such exercise", found=repr(name), remedy=remedy)


def exercises_of(lesson: str) -> tuple[Exercise, ...]:
    """The exercises of a lesson ('06' or '6'), in order; () where it has none."""
    return tuple(e for e in EXERCISES.values() if e.lesson == str(lesson).zfill(2))


State: TypeAlias = Literal["right", "wrong", "hint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of an answer."""

    state: State
    """'hint': not an answer of this kind, which counts as no attempt."""
    text: str
    """Why it is right, what was overlooked, or what is asked for."""
    value: Any = None
    """What the answer was read as; None where it could not be."""


@lru_cache(maxsize=256)
def for_student(exercise: Exercise, seed: str) -> Exercise:
    """The same exercise with the numbers of a student, computed once per process."""
    return Exercise(exercise.id, *exercise.source, seed)


def grade(exercise: Exercise, answer: object) -> Verdict:
    """The verdict on an answer."""
    kind = exercise.kind
    value = kind.read(answer)
    if isinstance(value, Refusal):
        return Verdict(state="hint", text=value.hint)
    if kind.same(value, exercise.truth):
        return Verdict(state="right", text=exercise.why, value=value)
    found = [(kind.read(mistake.answer), mistake.reason) for mistake in exercise.mistakes]
    mistakes = [(known, reason) for known, reason in found if not isinstance(known, Refusal)]
    for known, reason in mistakes:
        if kind.same(value, known):
            return Verdict(state="wrong", text=reason, value=value)
    # Twice a mistake is no answer in another unit: only far ones are looked for.
    for slip in (kind.slip(value, exercise.truth), *(kind.slip(value, known, far=True) for known, _ in mistakes)):
        if slip:
            return Verdict(state="hint", text=slip, value=value)
    return Verdict(state="wrong", text=kind.side(value, exercise.truth), value=value)
