"""A coding task, read from its text file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from alpa_explore.errors import UnknownNameError, nearest_names


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingTask:
    """A function to write."""

    name: str
    """'ring-all-reduce'."""
    lesson: str
    title: str
    statement: str
    starter: str
    """The code to begin with: one function, whose name the check calls."""
    right: str
    """A solution."""
    wrong: tuple[str, ...]
    """Solutions with a usual mistake each."""

    @property
    def function(self) -> str:
        """The name of the function."""
        return self.starter.partition("def ")[2].partition("(")[0]


@cache
def tasks() -> dict[str, CodingTask]:
    """All tasks by their name, in the order of the lessons."""
    texts = [one for one in (files(__package__) / "tasks").iterdir() if one.name.endswith(".toml")]
    found = [_read(one.name.removesuffix(".toml"), one.read_text(encoding="utf-8")) for one in texts]
    return {task.name: task for task in sorted(found, key=lambda task: (task.lesson, task.name))}


def task_of(name: object) -> CodingTask:
    """The task of a name. UnknownNameError, with the nearest names, where there is none."""
    text = str(name).strip().lower().replace(" ", "-").replace("_", "-")
    if text not in tasks():
        raise UnknownNameError("There is no such coding task", found=repr(name), remedy=nearest_names(text, tasks()))
    return tasks()[text]


def _read(name: str, text: str) -> CodingTask:
    said = tomllib.loads(text)
    plain = {key: said[key].strip() for key in ("lesson", "title", "statement", "starter", "right")}
    return CodingTask(name=name, wrong=tuple(one.strip() for one in said["wrong"]), **plain)
