"""An exercise: a table of a TOML file beside the module of its lesson, whose names its expressions may use.

To write one: draw numbers, compute the truth, and list the answers that people give by mistake, each with its reason.

    draw, until                expressions: the numbers `n` of a student, by `choice`, `randint` and others of `random`;
                               they are drawn again until this holds
    kind, truth, holds         the kind of answer; the right answer, computed by the library, in less than two seconds,
                               if possible; whether the premise holds
    title, premise             the premise says what the question takes for granted: 'delta changes the cuts'
    question, hints, why       texts; the first hint says where to look, the last nearly how to compute it; `why` says
                               why this is the answer: shown with a right answer, and as the solution
    code                       the solution as Python, which sets `answer`; a text, too
    mistakes                   `answer`, an expression, or `answers` for several with one `reason`, a text: 'That is one
                               direction only; …'. One that is right for these numbers, or that an earlier one explains,
                               is left out, and so is None
    values                     names for expressions that are too long for a text

Texts are templates of `alpa_explore.templates`, in paragraphs that are separated by blank lines, with `code` and
**bold** words. Expressions may name `n`, `truth`, `_KNOWN` and what the module of the lesson has;
those of question, hints and code name no truth. A test runs the code and expects that it is right; every mistake must
be wrong, and the premise must hold, for the numbers of several students.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from random import Random
from typing import Any

from alpa_explore import units
from alpa_explore.course.kinds import Choice, Items, Kind, Number
from alpa_explore.templates import computed, filled, joined

_KNOWN = {one.__name__.rpartition(".")[2]: one for one in (math, units, pairwise, product, Choice, Items, Number)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """An answer that people give by mistake."""

    answer: Any
    reason: str
    """What was overlooked."""


class Exercise:
    """A question of the course."""

    def __init__(self, key: str, table: Mapping[str, Any], names: Mapping[str, Any]) -> None:
        """`key` is lesson and number, '06.2'; `names` are those of the module of the lesson."""
        self.id = key
        self.points = 1
        self._said: dict[str, Any] = {name: said if name == "code" else joined(said) for name, said in table.items()}
        self._names = {**names, **_KNOWN}
        self.title: str = self._said["title"]
        self.premise: str = self._said["premise"]
        self._values: Mapping[str, str] = self._said.get("values", {})

    @property
    def lesson(self) -> str:
        """'06' of '06.2'."""
        return self.id.partition(".")[0]

    @property
    def grade(self) -> str:
        """How much there is to do, by its solution; functions to write (`coding`) are the third grade."""
        lines = [line for line in self._said["code"].splitlines() if line and not line.startswith(("from ", "import "))]
        return "one step" if len(lines) == 1 else "several steps"

    def numbers(self, seed: str) -> Any:
        """The numbers of a student; the same on every machine."""
        random = Random(f"{seed}/{self.id}")
        names = {**self._names, "random": random, "choice": random.choice, "randint": random.randint}
        while True:
            n = computed(self._said["draw"], names)
            if computed(self._said.get("until", "True"), {**names, "n": n}):
                return n

    def kind(self, n: Any) -> Kind:
        """The kind of its answer."""
        kind: Kind = computed(self._said["kind"], {**self._names, "n": n})
        return kind

    def truth(self, n: Any) -> Any:
        """The right answer."""
        return computed(self._said["truth"], {**self._names, "n": n})

    def holds(self, n: Any) -> bool:
        """Whether the premise holds."""
        return bool(computed(self._said["holds"], {**self._names, "n": n}))

    def question(self, n: Any) -> str:
        """What is asked."""
        return self._filled(self._said["question"], n=n)

    def why(self, n: Any, truth: Any) -> str:
        """Why this is the answer."""
        return self._filled(self._said["why"], n=n, truth=truth)

    def mistakes(self, n: Any, truth: Any) -> list[Mistake]:
        """The wrong answers that are explained, at least one."""
        given, kind = {"n": n, "truth": truth}, self.kind(n)
        known, found = [truth], list[Mistake]()
        for one in self._said["mistakes"]:
            expression = one["answers"] if "answers" in one else f"[{one['answer']}]"
            for answer in computed(expression, {**self._names, **given}, self._values):
                if answer is not None and not any(kind.same(kind.read(answer), other) for other in known):
                    known.append(answer)
                    found.append(Mistake(answer=answer, reason=self._filled(one["reason"], **given, answer=answer)))
        return found

    def hints(self, n: Any) -> list[str]:
        """In steps."""
        return [self._filled(hint, n=n) for hint in self._said["hints"]]

    def code(self, n: Any) -> str:
        """Python that sets `answer` to the right answer."""
        return self._filled(self._said["code"], n=n)

    def _filled(self, template: str, **given: Any) -> str:
        return filled(template, {**self._names, **given}, self._values)
