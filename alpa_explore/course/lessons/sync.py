"""Bring what follows from the lessons up to date: nbgrader's metadata of exercise cells, and the table of the index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alpa_explore.course.lessons.index import with_table
from alpa_explore.course.lessons.nbgrader import KEY, nbgrader_metadata
from alpa_explore.course.lessons.notebook import Lesson, notebook_text, read_lessons, read_notebook, source_of
from alpa_explore.store.write import write_text

INDEX = "index.ipynb"


def out_of_date(folder: Path) -> dict[Path, str]:
    """The notebooks of a folder that should have another text -> that text."""
    lessons = read_lessons(folder)
    texts = {lesson.path: _marked(lesson) for lesson in lessons}
    if (index := folder / INDEX).is_file():
        texts[index] = _indexed(index, lessons)
    return {path: text for path, text in texts.items() if text != notebook_text(read_notebook(path))}


def sync(folder: Path) -> list[Path]:
    """Write those notebooks, and return their paths."""
    changes = out_of_date(folder)
    for path, text in changes.items():
        write_text(path, text, "The notebook")
    return list(changes)


def _marked(lesson: Lesson) -> str:
    notebook = read_notebook(lesson.path)
    for raw, cell in zip(notebook["cells"], lesson.cells, strict=True):
        metadata: dict[str, Any] = {key: value for key, value in raw.get("metadata", {}).items() if key != KEY}
        if (mark := nbgrader_metadata(cell)) is not None:
            metadata[KEY] = dict(mark)
        raw["metadata"] = metadata
    return notebook_text(notebook)


def _indexed(path: Path, lessons: Sequence[Lesson]) -> str:
    notebook = read_notebook(path)
    for cell in notebook["cells"]:
        text = source_of(cell)
        if cell["cell_type"] == "markdown" and (new := with_table(text, lessons)) != text:
            cell["source"] = new.splitlines(keepends=True)
    return notebook_text(notebook)
