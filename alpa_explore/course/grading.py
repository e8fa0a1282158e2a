"""An answer to a verdict: right or wrong, and why; or a hint, where it is no answer of this kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from alpa_explore.course.definition import Exercise, Mistake
from alpa_explore.course.kinds import Refusal

State: TypeAlias = Literal["right", "wrong", "hint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of an answer."""

    state: State
    """'hint': not an answer of this kind, which counts as no attempt."""
    text: str
    """Why it is right, what was overlooked, or what is asked for."""


@lru_cache(maxsize=256)
def numbers_of(exercise: Exercise, seed: str) -> Any:
    """The numbers of a student."""
    return exercise.numbers(seed)


@lru_cache(maxsize=256)
def truth_of(exercise: Exercise, seed: str) -> Any:
    """The right answer for a student, computed once per process."""
    return exercise.truth(numbers_of(exercise, seed))


def mistakes_of(exercise: Exercise, seed: str) -> Sequence[Mistake]:
    """The wrong answers that are explained."""
    return exercise.mistakes(numbers_of(exercise, seed), truth_of(exercise, seed))


def grade(exercise: Exercise, seed: str, answer: object) -> Verdict:
    """The verdict on an answer of the student with this seed."""
    numbers = numbers_of(exercise, seed)
    kind = exercise.kind(numbers)
    value = kind.read(answer)
    if isinstance(value, Refusal):
        return Verdict(state="hint", text=value.hint)
    truth = truth_of(exercise, seed)
    if kind.same(value, truth):
        return Verdict(state="right", text=exercise.why(numbers, truth))
    for mistake in exercise.mistakes(numbers, truth):
        read = kind.read(mistake.answer)
        if not isinstance(read, Refusal) and kind.same(value, read):
            return Verdict(state="wrong", text=mistake.reason)
    if slip := kind.slip(value, truth):
        return Verdict(state="hint", text=slip)
    side = kind.side(value, truth)
    return Verdict(state="wrong", text=f"{side} `hint({exercise.id!r})` shows a first step.".strip())
