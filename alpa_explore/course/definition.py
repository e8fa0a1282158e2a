"""An exercise: a table of a TOML file beside the module of its lesson, whose names its expressions may use.

To write one: draw numbers, compute the truth, and list the answers that people give by mistake, each with its reason.

    draw, until                expressions: the numbers `n` of a student, by `choice`, `randint` and others of `random`;
                               several have names, `drawn(devices=choice((2, 4)), …)`, or are a value of the module.
                               They are drawn again until this holds
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
from functools import cached_property
from itertools import pairwise, product
from random import Random
from types import SimpleNamespace
from typing import Any

from alpa_explore import units
from alpa_explore.course.kinds import Choice, Items, Kind, Number
from alpa_explore.templates import computed, filled, joined

_KNOWN: dict[str, Any] = {"math": math, "units": units, "pairwise": pairwise, "product": product}
_KNOWN |= {"Choice": Choice, "Items": Items, "Number": Number, "drawn": SimpleNamespace}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """An answer that people give by mistake."""

    answer: Any
    reason: str
    """What was overlooked."""


class Exercise:
    """A question of the course with the numbers of a student, the same on every machine."""

    def __init__(self, key: str, table: Mapping[str, Any], names: Mapping[str, Any], seed: str) -> None:
        """`key` is lesson and number, '06.2'; `names` are those of the module of the lesson, `seed` the student."""
        self.id = key
        self.points = 1
        self.source = table, names
        self._said: dict[str, Any] = {name: said if name == "code" else joined(said) for name, said in table.items()}
        self._names, self._seed = {**names, **_KNOWN}, seed
        self.title: str = self._said["title"]
        self.premise: str = self._said["premise"]

    @property
    def lesson(self) -> str:
        """'06' of '06.2'."""
        return self.id.partition(".")[0]

    @property
    def grade(self) -> str:
        """How much there is to do, by its solution; functions to write (`coding`) are the third grade."""
        lines = [line for line in self._said["code"].splitlines() if line and not line.startswith(("from ", "import "))]
        return "one step" if len(lines) == 1 else "several steps"

    @cached_property
    def numbers(self) -> Any:
        """Those of the student."""
        random = Random(f"{self._seed}/{self.id}")
        names = {**self._names, "random": random, "choice": random.choice, "randint": random.randint}
        while True:
            n = computed(self._said["draw"], names)
            if computed(self._said.get("until", "True"), {**names, "n": n}):
                return n

    @cached_property
    def kind(self) -> Kind:
        """The kind of its answer."""
        kind: Kind = self._computed("kind")
        return kind

    @cached_property
    def truth(self) -> Any:
        """The right answer."""
        return self._computed("truth")

    @property
    def holds(self) -> bool:
        """Whether the premise holds."""
        return bool(self._computed("holds"))

    @property
    def question(self) -> str:
        """What is asked."""
        return self._filled(self._said["question"])

    @property
    def hints(self) -> list[str]:
        """In steps."""
        return [self._filled(hint) for hint in self._said["hints"]]

    @property
    def code(self) -> str:
        """Python that sets `answer` to the right answer."""
        return self._filled(self._said["code"])

    @property
    def why(self) -> str:
        """Why the truth is the answer."""
        return self._filled(self._said["why"], truth=self.truth)

    @property
    def mistakes(self) -> list[Mistake]:
        """The wrong answers that are explained, at least one."""
        given = {"n": self.numbers, "truth": self.truth}
        known, found = [self.truth], list[Mistake]()
        for one in self._said["mistakes"]:
            expression = one["answers"] if "answers" in one else f"[{one['answer']}]"
            for answer in computed(expression, {**self._names, **given}, self._said.get("values")):
                if answer is not None and not any(self.kind.same(self.kind.read(answer), other) for other in known):
                    known.append(answer)
                    reason = self._filled(one["reason"], truth=self.truth, answer=answer)
                    found.append(Mistake(answer=answer, reason=reason))
        return found

    def _computed(self, name: str) -> Any:
        return computed(self._said[name], {**self._names, "n": self.numbers})

    def _filled(self, template: str, **given: Any) -> str:
        return filled(template, {**self._names, "n": self.numbers, **given}, self._said.get("values"))
