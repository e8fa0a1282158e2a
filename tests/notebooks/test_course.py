"""Every notebook of the course runs from top to bottom, in a kernel of its own, and ends with questions."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
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


@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if not p.name.startswith("00")], ids=lambda path: path.stem)
def test_a_lesson_ends_with_questions_and_the_explorer_that_answers_them(path: Path) -> None:
    *_, questions, last = nbformat.read(path, as_version=4).cells
    assert questions.cell_type == "markdown"
    assert "## Questions" in questions.source
    assert questions.source.count("?") >= 2
    assert last.source.splitlines()[-1].startswith("explore(")
