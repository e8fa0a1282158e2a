"""Notebooks are stored without what a run leaves behind, so that a diff shows what a person changed."""

from pathlib import Path

import nbformat

from tests.architecture.sources import files, name_of

NOTEBOOKS = files(".ipynb")


def leftovers(path: Path) -> list[str]:
    """What a run left in a notebook."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    run = [f"cell {cell.source[:40]!r}" for cell in code if cell.outputs or cell.execution_count is not None]
    return run + (["widget state"] if "widgets" in notebook.metadata else [])


def test_notebooks_are_stored_stripped() -> None:
    assert {name_of(path): left for path in NOTEBOOKS if (left := leftovers(path))} == {}, "make notebooks strips them"


def test_notebooks_ask_for_the_kernel_that_every_jupyter_has() -> None:
    kernels = {name_of(path): nbformat.read(path, as_version=4).metadata.kernelspec.name for path in NOTEBOOKS}
    assert set(kernels.values()) == {"python3"}, kernels


def test_there_is_a_tour() -> None:
    assert "notebooks/00_tour.ipynb" in [name_of(path) for path in NOTEBOOKS]
