"""All exercises by their id, and what a mistyped id means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from alpa_explore.course.definition import Exercise
from alpa_explore.course.exercises.planning import (
    capture,
    cluster,
    collectives,
    formulations,
    layering,
    pipeline,
    sharding,
    tour,
)
from alpa_explore.course.exercises.training import (
    accuracy,
    attention,
    block,
    experts,
    hidden,
    memory,
    running,
    schedules,
    which_layout,
    your_own,
)
from alpa_explore.errors import UnknownNameError, nearest_names

_LESSONS: tuple[ModuleType, ...]
_LESSONS = (tour, capture, cluster, collectives, layering, sharding, formulations, pipeline, schedules, memory)
_LESSONS += (attention, experts, running, accuracy, your_own, block, hidden, which_layout)
"""Their exercises, in the order of the lessons."""
_NUMBER = re.compile(r"(\d{1,2})\.(\d{1,2})")


def _by_id() -> Mapping[str, Exercise[Any]]:
    found: dict[str, Exercise[Any]] = {}
    for lesson, module in enumerate(_LESSONS):
        for place, exercise in enumerate(module.EXERCISES, start=1):
            assert exercise.id == f"{lesson:02}.{place}", f"exercise {exercise.id} should be {lesson:02}.{place}"
            found[exercise.id] = exercise
    return MappingProxyType(found)


EXERCISES: Mapping[str, Exercise[Any]] = _by_id()
"""Id -> exercise, in the order of the course."""


def exercise_of(name: object) -> Exercise[Any]:
    """The exercise of an id; '6.2' and 6.2 mean '06.2'. UnknownNameError, with the nearest ids, where there is none."""
    text = str(name).strip()
    if number := _NUMBER.fullmatch(text):
        text = f"{int(number[1]):02}.{int(number[2])}"
    if text in EXERCISES:
        return EXERCISES[text]
    same_lesson = [e for e in EXERCISES if e.startswith(text.partition(".")[0].zfill(2) + ".")]
    remedy = f"This lesson has {', '.join(same_lesson)}." if same_lesson else nearest_names(text, EXERCISES)
    raise UnknownNameError("There is no such exercise", found=repr(name), remedy=remedy)


def exercises_of(lesson: str) -> tuple[Exercise[Any], ...]:
    """The exercises of a lesson ('06' or '6'), in order; () where it has none."""
    return tuple(e for e in EXERCISES.values() if e.lesson == str(lesson).zfill(2))
