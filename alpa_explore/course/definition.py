"""An exercise as a value. Its truth is computed by the library from numbers that are drawn for each student.

To write one: draw numbers, ask with them, compute the truth, and list the answers that people give by mistake, each
with its reason. `code` is the solution as Python: it sets `answer`, and a test runs it and expects that it is right;
every mistake must be wrong, and the premise must hold, for the numbers of several students.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, TypeVar

from alpa_explore.course.kinds import Kind

N = TypeVar("N")
"""The numbers of an exercise: a small frozen dataclass, a NamedTuple, or a plain number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """An answer that people give by mistake."""

    answer: Any
    reason: str
    """What was overlooked: 'That is one direction only; …'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise(Generic[N]):
    """A question of the course. Texts are paragraphs, separated by blank lines, with `code` and **bold** words."""

    id: str
    """Lesson and number: '06.2'."""
    title: str
    draw: Callable[[Random], N]
    """The numbers of a student."""
    question: Callable[[N], str]
    kind: Callable[[N], Kind]
    truth: Callable[[N], Any]
    """The right answer, computed by the library; in less than two seconds, if possible."""
    why: Callable[[N, Any], str]
    """(numbers, truth) -> why this is the answer: shown with a right answer, and as the solution."""
    mistakes: Callable[[N, Any], Sequence[Mistake]]
    """(numbers, truth) -> at least one plausible wrong answer."""
    hints: Callable[[N], Sequence[str]]
    """In steps: the first says where to look, the last nearly how to compute it."""
    code: Callable[[N], str]
    """Python that sets `answer` to the right answer; shown as part of the solution."""
    premise: str
    """What the question takes for granted: 'delta changes the cuts'."""
    holds: Callable[[N], bool]
    """Whether it does, for these numbers."""
    points: int = 1

    @property
    def lesson(self) -> str:
        """'06' of '06.2'."""
        return self.id.partition(".")[0]

    def numbers(self, seed: str) -> N:
        """The numbers of a student; the same on every machine."""
        return self.draw(Random(f"{seed}/{self.id}"))
