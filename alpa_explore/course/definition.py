"""An exercise as a value. Its truth is computed by the library from numbers that are drawn for each student.

To write one: draw numbers, compute the truth, and list the answers that people give by mistake. Its texts are in a file
of their own (`texts`): the question, why the truth is right, the reason of each mistake, hints, and `code`, the
solution as Python, which sets `answer`. A test runs it and expects that it is right; every mistake must be wrong, and
the premise must hold, for the numbers of several students.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Generic, TypeVar

from alpa_explore.course.kinds import Kind
from alpa_explore.course.texts import Texts, filled, texts_of

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
    draw: Callable[[Random], N]
    """The numbers of a student."""
    kind: Callable[[N], Kind]
    truth: Callable[[N], Any]
    """The right answer, computed by the library; in less than two seconds, if possible."""
    wrong: Callable[[N, Any], Sequence[Any]]
    """(numbers, truth) -> wrong answers, at least one, in the order of their reasons (`Texts.mistakes`): None where an
    answer is none for these numbers, a `Mistake` where it has a reason of its own."""
    holds: Callable[[N], bool]
    """Whether the premise holds for these numbers."""
    values: Mapping[str, Callable[[N, Any], Any]] = field(default_factory=dict, hash=False)
    """Name in the texts -> (numbers, truth) -> what is shown; beside `n`, the numbers, and `truth`. Question, hints and
    code name none that needs the truth."""
    points: int = 1

    @property
    def lesson(self) -> str:
        """'06' of '06.2'."""
        return self.id.partition(".")[0]

    def numbers(self, seed: str) -> N:
        """The numbers of a student; the same on every machine."""
        return self.draw(Random(f"{seed}/{self.id}"))

    @property
    def texts(self) -> Texts:
        """Its texts, as templates."""
        return texts_of(self.id)

    @property
    def title(self) -> str:
        """A few words."""
        return self.texts.title

    @property
    def premise(self) -> str:
        """What the question takes for granted."""
        return self.texts.premise

    def question(self, n: N) -> str:
        """What is asked."""
        return self._filled(self.texts.question, n)

    def why(self, n: N, truth: Any) -> str:
        """Why this is the answer: shown with a right answer, and as the solution."""
        return self._filled(self.texts.why, n, truth)

    def mistakes(self, n: N, truth: Any) -> list[Mistake]:
        """The wrong answers that are explained."""
        given, reasons = self.wrong(n, truth), iter(self.texts.mistakes)
        pairs = [(answer, None if isinstance(answer, Mistake) else next(reasons)) for answer in given]
        return [
            answer if reason is None else Mistake(answer=answer, reason=self._filled(reason, n, truth))
            for answer, reason in pairs
            if answer is not None
        ]

    def hints(self, n: N) -> list[str]:
        """In steps: the first says where to look, the last nearly how to compute it."""
        return [self._filled(hint, n) for hint in self.texts.hints]

    def code(self, n: N) -> str:
        """Python that sets `answer` to the right answer; shown as part of the solution."""
        return self._filled(self.texts.code, n)

    def _filled(self, template: str, n: N, truth: Any = None) -> str:
        return filled(template, _Values(self.values, n, truth))


class _Values(Mapping[str, Any]):
    """The values of a text, each computed when it is named."""

    def __init__(self, values: Mapping[str, Callable[[Any, Any], Any]], n: Any, truth: Any) -> None:
        self._values, self._plain = values, {"n": n, "truth": truth}

    def __getitem__(self, name: str) -> Any:
        return self._plain[name] if name in self._plain else self._values[name](self._plain["n"], self._plain["truth"])

    def __iter__(self) -> Iterator[str]:
        return iter((*self._plain, *self._values))

    def __len__(self) -> int:
        return len(self._plain) + len(self._values)
