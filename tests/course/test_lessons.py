"""Lessons as values: what the structure asks for, nbgrader's metadata, and what is written again."""

import json
from pathlib import Path

import jsonschema
import pytest

from alpa_explore.course.lessons.notebook import Cell, notebook_text, read_lesson, read_lessons, sections
from alpa_explore.course.lessons.sync import BEGIN, END, nbgrader_metadata, out_of_date, sync
from alpa_explore.course.registry import EXERCISES, exercises_of
from alpa_explore.errors import OptionError
from tests.course.example_lesson import CELLS, notebook, write
from tests.course.structure import faults

NBGRADER = {
    "type": "object",
    "properties": {
        "schema_version": {"type": "integer", "minimum": 3, "maximum": 3},
        "grade": {"type": "boolean"},
        "locked": {"type": "boolean"},
        "solution": {"type": "boolean"},
        "task": {"type": "boolean"},
        "grade_id": {"type": "string", "pattern": r"^[a-zA-Z0-9_\-]+$"},
        "points": {"type": "number", "minimum": 0},
        "checksum": {"type": "string", "minLength": 32, "maxLength": 32},
        "cell_type": {"type": "string", "enum": ["raw", "code", "markdown"]},
    },
    "required": ["schema_version", "grade", "locked", "solution", "grade_id"],
    "additionalProperties": False,
}
"""The rules of nbgrader's documentation for a cell's metadata, version 3."""


def test_the_example_has_the_structure(tmp_path: Path) -> None:
    lesson = read_lesson(write(tmp_path / "03_example.ipynb", CELLS))
    others = [f"exercise {exercise.id} is not asked" for exercise in exercises_of("03")[1:]]
    assert faults(lesson) == [*others, "it has 1 exercises, and should have 2 at least"]
    assert (lesson.number, lesson.title, lesson.minutes, lesson.exercises) == ("03", "Example", 15, ("03.1",))


def test_two_sections_may_begin_in_one_cell(tmp_path: Path) -> None:
    joined = [*CELLS[:2], ("markdown", f"{CELLS[2][1]}\n\n{CELLS[3][1]}"), *CELLS[4:]]
    apart, together = (read_lesson(write(tmp_path / "03_example.ipynb", cells)) for cells in (CELLS, joined))
    assert [heading for heading, _ in sections(together)] == [heading for heading, _ in sections(apart)]
    assert faults(together) == faults(apart)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("## Guess", "### Guess", "not in the order"),
        ("## Figure", "## Picture", "is none of"),
        ("# 03 · Example", "# Example", "does not begin"),
        ('exercise("03.1", ...)', "pass", "03.1 is not asked"),
        ('exercise("03.1", ...)', 'exercise("03.77", ...)', "03.77 does not exist"),
        ('points("03")', "pass", "no cell, or more than one"),
        ("$", "", "has no formula"),
        ("How long does it take?", "Long.", "asks nothing"),
        ("my_guess = ...", None, "has no code"),
        ("reveal(my_guess", "\nassert 4 == 4\nreveal(my_guess", "asserts what the reader is to guess"),
    ],
)
def test_what_is_missing_is_said(old: str, new: str | None, expected: str, tmp_path: Path) -> None:
    cells = [(kind, text.replace(old, new or "")) for kind, text in CELLS if new is not None or old not in text]
    assert cells != CELLS
    found = faults(read_lesson(write(tmp_path / "03_example.ipynb", cells)))
    assert any(expected in fault for fault in found), found


def test_a_lesson_says_its_goals_and_builds_on_earlier_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "03_example.ipynb", CELLS, goals=["g"], prerequisites=["02", "05"])
    assert "lesson 05 comes later" in faults(read_lesson(path))
    assert any("no alpa_course" in fault for fault in faults(read_lesson(write(path, CELLS, prerequisites=["02"]))))


def test_the_metadata_of_cells_is_what_nbgrader_documents() -> None:
    mark = nbgrader_metadata(Cell(kind="code", source='points("03")', metadata={}))
    jsonschema.validate(mark, NBGRADER)
    assert mark["grade"] is mark["locked"] is True
    assert mark["solution"] is False, "nbgrader empties solution cells in the version for students"
    assert mark["points"] >= 1
    for source in ("x = 1", 'exercise("03.1", 7)'):
        assert nbgrader_metadata(Cell(kind="code", source=source, metadata={})) is None, "nbgrader warns of such a mark"


def test_sync_writes_metadata_and_the_table_once(tmp_path: Path) -> None:
    lesson = write(tmp_path / "03_example.ipynb", CELLS)
    index = write(tmp_path / "index.ipynb", [("markdown", f"# Index\n\n{BEGIN}\n{END}\n")])
    before = json.loads(lesson.read_text())
    assert set(sync(tmp_path)) == {lesson, index}
    assert out_of_date(tmp_path) == {}
    assert sync(tmp_path) == []
    after = json.loads(lesson.read_text())
    marked = [cell for cell in after["cells"] if "nbgrader" in cell["metadata"]]
    assert [cell["metadata"]["nbgrader"]["grade_id"] for cell in marked] == ["points-03"]
    for cell in marked:
        del cell["metadata"]["nbgrader"]
    assert after == before
    assert "| [03 · Example](03_example.ipynb) | 15 | see a ring |" in index.read_text()

    cells = [(kind, text) for kind, text in CELLS if 'exercise("03.1"' not in text]
    changed = notebook(cells)
    changed["cells"][0]["metadata"]["nbgrader"] = {"grade": True}
    lesson.write_text(notebook_text(changed))
    sync(tmp_path)
    assert "nbgrader" not in json.loads(lesson.read_text())["cells"][0]["metadata"], "left over from another cell"


def test_the_minutes_of_a_lesson_follow_its_words_code_figures_and_exercises(tmp_path: Path) -> None:
    path = tmp_path / "03_example.ipynb"

    def minutes(*more: tuple[str, str]) -> int:
        return read_lesson(write(path, [*CELLS, *more])).minutes

    short = minutes()
    assert minutes(("markdown", "word " * 200 * 30)) == short + 30
    assert minutes(("code", "x = 1\n" * 10 * 20)) == short + 20
    assert minutes(*[("markdown", "## Figure: again")] * 5) == short + 15
    steps = {key: minutes(*[("code", f'exercise("{key}", ...)')] * 5) - short for key in ("03.2", "05.1")}
    assert (steps, EXERCISES["05.1"].grade) == ({"03.2": 20, "05.1": 40}, "several steps")
    assert minutes(("markdown", "word " * 200 * 2)) % 5 == 0


def test_minutes_that_a_text_says_are_written_again(tmp_path: Path) -> None:
    lesson = write(tmp_path / "03_example.ipynb", [*CELLS, ("markdown", "word " * 200 * 60)])
    roads = "* **A road**, 5 minutes: 03, 03. To see.\n* **Another**, 5 minutes: 03, 04. To hear."
    index = write(tmp_path / "index.ipynb", [("markdown", f"# Index\n\n{roads}")])
    sync(tmp_path)
    assert "*75 minutes. You need nothing.*" in read_lesson(lesson).cells[0].source
    said = read_lesson(index).cells[0].source
    assert "**A road**, 150 minutes: 03, 03." in said
    assert "**Another**, 5 minutes: 03, 04." in said, "a lesson that is not there has no minutes"


def test_a_folder_without_lessons_and_a_damaged_notebook_are_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no notebook such as"):
        read_lessons(tmp_path)
    write(tmp_path / "03_example.ipynb", CELLS)
    with pytest.raises(OptionError, match="The lessons are 03"):
        read_lessons(tmp_path, ["3", "9"])
    for text in ("{", "[]", '{"cells": 3}'):
        (tmp_path / "03_example.ipynb").write_text(text)
        with pytest.raises(OptionError, match=r"03_example\.ipynb"):
            read_lessons(tmp_path)
