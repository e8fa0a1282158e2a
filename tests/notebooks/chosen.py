"""Which lessons a run of the tests takes: those that a change may have broken, and some others in turn."""

import re
import subprocess
from collections.abc import Collection, Sequence
from datetime import date
from pathlib import Path, PurePosixPath

import alpa_explore as ax
from alpa_explore.course.lessons.notebook import Lesson

_IMPORT = re.compile(r"^\s*from (alpa_explore[\w.]*) import ([\w, ]+)", re.MULTILINE)
_NAME = re.compile(r"\bax\.(\w+)")


def chosen(lessons: Sequence[Lesson], changed: Collection[str], day: date, count: int) -> list[Lesson]:
    """`count` lessons: first those of which more `changed` files are named, then the ones whose turn it is.

    Lessons that were changed themselves are all taken.
    """
    first = day.toordinal() * count % len(lessons)
    in_turn = [*lessons[first:], *lessons[:first]]
    own = [lesson for lesson in in_turn if f"notebooks/{lesson.path.name}" in changed]
    rest = sorted((x for x in in_turn if x not in own), key=lambda x: len(named(x) & set(changed)), reverse=True)
    return [*own, *rest[: max(count - len(own), 0)]]


def named(lesson: Lesson) -> set[str]:
    """The files of this project that a lesson imports, or takes a name from."""
    code = "\n".join(cell.source for cell in lesson.cells if cell.kind == "code")
    modules = {getattr(ax, name).__module__ for name in set(_NAME.findall(code)) if hasattr(ax, name)}
    for module, names in _IMPORT.findall(code):
        modules |= {module, *(f"{module}.{name.strip()}" for name in names.split(","))}
    paths = {PurePosixPath(*module.split(".")) for module in modules}
    folders = {PurePosixPath("widgets", path) if path.parts[0] != "alpa_explore" else path for path in paths}
    return {str(path) + ending for path in folders for ending in (".py", "/__init__.py")}


def changed_files(root: Path) -> set[str]:
    """What differs here from the last commit that origin/main has; nothing where git cannot say."""
    command = ["git", "diff", "--name-only", "--merge-base", "origin/main"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return set()
    return set(done.stdout.split()) if done.returncode == 0 else set()
