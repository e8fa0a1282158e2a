"""A lesson, read from its notebook.

What it says of itself is in the notebook's metadata: `"alpa_course": {"goals": ["…"], "prerequisites": ["05"]}`. Its
number is that of its file, its title the first heading, and its minutes are computed from its cells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alpa_explore.course.registry import EXERCISES
from alpa_explore.errors import OptionError

METADATA = "alpa_course"
_FILE = re.compile(r"(\d\d)_(\w+)\.ipynb")
_CALL = re.compile(r"^\s*exercise\(\s*[\"'](\d\d\.\d+)[\"']", re.MULTILINE)
_POINTS = re.compile(r"^\s*points\(\s*[\"'](\d\d)[\"']", re.MULTILINE)
_BEFORE_SECTION = re.compile(r"^(?=## )", re.MULTILINE)
_HEADING = re.compile(r"^(#{1,3}) +(.+?) *$", re.MULTILINE)
WORDS_A_MINUTE = 200
"""In which a text is read once to be learned from: an assumption. Where nothing is new, skilled readers do 300 a minute
(Rayner and others, So Much to Read, So Little Time, 2016)."""
LINES_A_MINUTE = 10
"""Of code, and the minutes below: assumptions, too."""
FIGURE_MINUTES = 3
"""To guess, and to move the sliders of the figure behind it."""
EXERCISE_MINUTES = {"one step": 4, "several steps": 8}
"""By the grade of the exercise."""
TASK_MINUTES = 20
"""For a function to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell."""

    kind: str
    """'markdown' or 'code'."""
    source: str
    metadata: Mapping[str, Any]

    @property
    def exercise(self) -> str:
        """The id of the exercise that the cell asks; '' where it asks none."""
        return self._named(_CALL)

    @property
    def points(self) -> str:
        """The lesson whose points the cell shows; '' where it shows none."""
        return self._named(_POINTS)

    def _named(self, call: re.Pattern[str]) -> str:
        found = call.search(self.source) if self.kind == "code" else None
        return found[1] if found else ""

    @property
    def headings(self) -> list[tuple[int, str]]:
        """(level, text) of the headings of a markdown cell."""
        return [(len(marks), text) for marks, text in _HEADING.findall(self.source)] if self.kind == "markdown" else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A notebook of the course."""

    path: Path
    number: str
    """'06'; '' for a page that is no lesson, such as the glossary."""
    title: str
    goals: tuple[str, ...]
    prerequisites: tuple[str, ...]
    """Numbers of lessons."""
    cells: tuple[Cell, ...]

    @property
    def minutes(self) -> int:
        """To read it with its code, play with its figures and answer its exercises, to the next five; without the
        functions to write."""
        texts = [cell.source for cell in self.cells if cell.kind == "markdown"]
        lines = sum(cell.source.count("\n") + 1 for cell in self.cells if cell.kind == "code" and not cell.exercise)
        figures = sum(text.startswith("Figure") for cell in self.cells for level, text in cell.headings if level == 2)
        spent = len(" ".join(texts).split()) / WORDS_A_MINUTE + lines / LINES_A_MINUTE
        spent += sum(EXERCISE_MINUTES[EXERCISES[key].grade] for key in self.exercises if key in EXERCISES)
        return 5 * round((spent + FIGURE_MINUTES * figures) / 5)

    @property
    def name(self) -> str:
        """'06_formulations'."""
        return self.path.stem

    @property
    def exercises(self) -> tuple[str, ...]:
        """The ids of the exercises that are asked, in order."""
        return tuple(cell.exercise for cell in self.cells if cell.exercise)


def read_lesson(path: Path) -> Lesson:
    """Read a notebook. OptionError where the file is none."""
    notebook = read_notebook(path)
    cells = tuple(
        Cell(kind=cell["cell_type"], source=source_of(cell), metadata=cell.get("metadata", {}))
        for cell in notebook["cells"]
    )
    said = notebook["metadata"].get(METADATA, {})
    title = next((text for cell in cells for level, text in cell.headings if level == 1), path.stem)
    number = match[1] if (match := _FILE.fullmatch(path.name)) else ""
    return Lesson(
        path=path,
        number=number,
        title=re.sub(r"^\d\d · ", "", title),
        goals=tuple(said.get("goals", ())),
        prerequisites=tuple(said.get("prerequisites", ())),
        cells=cells,
    )


def read_lessons(folder: Path, numbers: Sequence[str] = ()) -> tuple[Lesson, ...]:
    """The lessons of a folder in order, or those with these numbers. OptionError where there is none."""
    found = {match[1]: path for path in sorted(folder.glob("*.ipynb")) if (match := _FILE.fullmatch(path.name))}
    if not found:
        raise OptionError(
            "There are no lessons",
            found=f"no notebook such as 00_tour.ipynb in {folder}",
            remedy="Name the folder of the course: --notebooks FOLDER. It is notebooks/ in the source of alpa_explore.",
        )
    wanted = [str(number).zfill(2) for number in numbers] or list(found)
    if unknown := [number for number in wanted if number not in found]:
        raise OptionError(
            "There is no such lesson", found=", ".join(unknown), remedy=f"The lessons are {', '.join(found)}."
        )
    return tuple(read_lesson(found[number]) for number in wanted)


def course_folder() -> Path:
    """Where the notebooks are in a checkout of the source: beside the package."""
    return Path(__file__).resolve().parents[3] / "notebooks"


def read_notebook(path: Path) -> dict[str, Any]:
    """The JSON of a notebook. OptionError where it cannot be read."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(
            "A notebook cannot be read", found=f"{path}: {error}", remedy="Check the file, or restore it."
        ) from error
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise OptionError("This is no notebook", found=str(path), remedy="Name the folder of the course.")
    return notebook


def notebook_text(notebook: Mapping[str, Any]) -> str:
    """A notebook as the text of its file, in the way that nbstripout writes it."""
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def source_of(cell: Mapping[str, Any]) -> str:
    """The text of a cell."""
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def sections(lesson: Lesson) -> Iterator[tuple[str, list[Cell]]]:
    """The sections of a lesson: (heading of level 2, cells), beginning with ('', …) for what stands above the first."""
    heading, cells = "", list[Cell]()
    for cell in lesson.cells:
        for piece in _BEFORE_SECTION.split(cell.source) if cell.kind == "markdown" else [cell.source]:
            part = Cell(kind=cell.kind, source=piece, metadata=cell.metadata)
            if starts := [text for level, text in part.headings if level == 2]:
                yield heading, cells
                heading, cells = starts[0], []
            if piece.strip():
                cells.append(part)
    yield heading, cells
