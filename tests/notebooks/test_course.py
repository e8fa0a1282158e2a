"""Every lesson of the course runs from top to bottom, in a kernel of its own, and is built like the others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from alpa_explore.course.lessons.index import lessons_table
from alpa_explore.course.lessons.notebook import Lesson, course_folder, read_lesson, read_lessons
from alpa_explore.course.lessons.structure import faults
from alpa_explore.course.lessons.sync import out_of_date
from alpa_explore.course.registry import EXERCISES
from alpa_explore.models.catalog import entry

LESSONS = read_lessons(course_folder())
NOTEBOOKS = [lesson.path for lesson in LESSONS]
PAGES = [course_folder() / f"{name}.ipynb" for name in ("index", "glossary", "lecturer")]
AT_ONCE = 2
"""Kernels: half of a notebook's time is starting one, and CI has two cores."""


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, Future]]:
    """Notebook -> its run; those that were asked for run side by side."""
    asked = [
        i.callspec.params["path"]
        for i in request.session.items
        if i.module is request.module and "runs" in i.fixturenames
    ]
    folder = tmp_path_factory.mktemp("course")
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(AT_ONCE) as pool:
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
            patch.setenv(name, str(folder / name.lower()))
        yield {path: pool.submit(run, path, folder) for path in dict.fromkeys(asked)}


def run(path: Path, folder: Path) -> nbformat.NotebookNode:
    """Run a notebook where it cannot leave files in the repository."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    return notebook


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path, runs: dict[Path, Future]) -> None:
    notebook = runs[path].result()
    assert [cell.source for cell in notebook.cells if cell.cell_type == "code" and cell.execution_count is None] == []


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_lesson_asks_lets_guess_shows_explains_and_has_exercises(lesson: Lesson) -> None:
    assert faults(lesson) == []


def test_every_exercise_is_asked_by_a_lesson_that_is_there() -> None:
    numbers = {lesson.number for lesson in LESSONS}
    assert [key for key, exercise in EXERCISES.items() if exercise.lesson not in numbers] == []


def test_the_index_and_the_metadata_of_exercise_cells_are_up_to_date() -> None:
    assert list(out_of_date(course_folder())) == [], "alpa-explore course sync writes them"
    (index, *_) = PAGES
    assert lessons_table(LESSONS) in "\n".join(cell.source for cell in read_lesson(index).cells)


@pytest.mark.parametrize("path", [*NOTEBOOKS, *PAGES], ids=lambda path: path.stem)
def test_links_between_notebooks_lead_to_one(path: Path) -> None:
    links = [link for cell in read_lesson(path).cells for link in re.findall(r"\]\(([^)#:]+)\)", cell.source)]
    assert [link for link in links if not (path.parent / link).is_file()] == []


def test_the_table_of_the_paper_in_lesson_13_has_the_measured_and_the_stored_throughput() -> None:
    benchmarks = course_folder().parent / "benchmarks"
    table = json.loads((benchmarks / "alpa_paper.json").read_text(encoding="utf-8"))["throughput_pflops"]
    stored = json.loads((benchmarks / "paper_rows.json").read_text(encoding="utf-8"))
    by_gpus = {gpus: dict(zip(table["columns"][1:], row, strict=True)) for gpus, *row in table["rows"]}
    lesson = next(lesson for lesson in LESSONS if lesson.number == "13")
    words = "\n".join(cell.source for cell in lesson.cells)
    rows = re.findall(r"^\| (\S+) \| (\d+) \| (\S+) PFLOPS \| (\S+) PFLOPS \| (\S+) \|$", words, re.MULTILINE)
    assert len(rows) == 8
    for name, gpus, measured, predicted, ratio in rows:
        family = next(f for f in ("gpt", "moe", "wide_resnet") if name.replace("-", "_").startswith(f))
        paper, ours = by_gpus[int(gpus)][f"{family}_alpa"], stored[name]["pflops"]
        assert entry(name).gpus == int(gpus)
        assert (measured, predicted, ratio) == (f"{paper:.2f}", f"{ours:.2f}", f"{ours / paper:.2f}"), name
