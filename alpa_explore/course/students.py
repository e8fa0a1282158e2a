"""Who answers, and what was solved: kept in memory and, where that is possible, in a file of the user.

The file is `<folder>/<name>.json`. The folder is $ALPA_EXPLORE_COURSE, otherwise the platform's folder for the data of
a user's programs. A folder that cannot be written, or a damaged file, costs the memory of former sessions, nothing
else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from platformdirs import user_data_path

from alpa_explore.errors import PlanFileError
from alpa_explore.store.write import write_text

EVERYBODY = "everybody"
"""The seed of those who have not said who they are; the website asks with its numbers."""
_FORMAT = 1
_GUESS = {"problem", "model", "layout", "seconds", "best_seconds"}
"""What a row of the league has."""


@dataclass(slots=True, kw_only=True)
class Attempts:
    """What one student did with one exercise."""

    tries: int = 0
    hints: int = 0
    solved: bool = False
    wrong: Any = None
    """The last answer, if it was wrong."""


@dataclass(slots=True, kw_only=True)
class Student:
    """A student: a seed of numbers, and the attempts so far."""

    name: str
    attempts: dict[str, Attempts] = field(default_factory=dict)
    guesses: list[dict[str, Any]] = field(default_factory=list)
    """The league: what was guessed of layouts, and what became of it."""
    kept: bool = False
    """Whether the last change is in the file."""

    def of(self, exercise: str) -> Attempts:
        """The attempts at one exercise."""
        return self.attempts.setdefault(exercise, Attempts())

    def _add(self, other: Student) -> None:
        """What another notebook of the same student has in the file by now."""
        for key, there in other.attempts.items():
            here = self.of(key)
            here.tries, here.hints = max(here.tries, there.tries), max(here.hints, there.hints)
            here.solved |= there.solved
        self.guesses += [guess for guess in other.guesses if guess not in self.guesses]

    def save(self) -> None:
        """Keep the attempts in the file, where it can be written, beside those of other notebooks."""
        self._add(known(self.name))
        record = {
            "format": _FORMAT,
            "name": self.name,
            "attempts": {
                key: {name: getattr(value, name) for name in Attempts.__slots__} for key, value in self.attempts.items()
            },
            "guesses": self.guesses,
        }
        path = file_of(self.name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(record, indent=1), "The progress")
        except (OSError, PlanFileError):
            self.kept = False
        else:
            self.kept = True


@cache
def desk() -> list[Student]:
    """The students of this process; the last one answers."""
    return []


def current() -> Student:
    """Who answers in this process; everybody, where nobody has said a name."""
    return desk()[-1] if desk() else sit_down(EVERYBODY)


def sit_down(name: str) -> Student:
    """Let `name` answer from now on."""
    desk().append(known(name))
    return desk()[-1]


def everyone() -> list[Student]:
    """The student of this process, and all others whose files are in the same folder."""
    here = current()
    names = []
    for path in sorted(file_of(here.name).parent.glob("*.json")):
        record = _record(path)
        if record is not None and isinstance(record.get("name"), str):
            names.append(record["name"])
    return [here, *(known(name) for name in names if name != here.name)]


def file_of(name: str) -> Path:
    """The file of a student; names that differ have files that differ."""
    folder = os.environ.get("ALPA_EXPLORE_COURSE")
    place = Path(folder) if folder else Path(user_data_path("alpa-explore", appauthor=False)) / "course"
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return place / f"{re.sub(r'[^A-Za-z0-9_-]+', '-', name)[:40]}-{digest}.json"


def known(name: str) -> Student:
    """A student with what the file remembers; new where there is no file, or none that can be read."""
    student = Student(name=name)
    record = _record(file_of(name))
    if record is None:
        return student
    attempts, guesses = record.get("attempts"), record.get("guesses")
    if isinstance(attempts, dict):
        student.attempts = {str(key): _attempts(value) for key, value in attempts.items() if isinstance(value, dict)}
    if isinstance(guesses, list):
        student.guesses = [guess for guess in guesses if isinstance(guess, dict) and guess.keys() >= _GUESS]
    return student


def _record(path: Path) -> dict[str, Any] | None:
    """What a file remembers; None where there is no file, or none that can be read."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and record.get("format") == _FORMAT else None


def _attempts(record: Mapping[str, Any]) -> Attempts:
    counts = {name: record.get(name, 0) for name in ("tries", "hints")}
    return Attempts(
        **{name: count if isinstance(count, int) else 0 for name, count in counts.items()},
        solved=record.get("solved") is True,
        wrong=record.get("wrong"),
    )
