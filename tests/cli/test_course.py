"""`alpa-explore course`: lists the lessons, brings notebooks up to date, and says what a website needs."""

import json
from pathlib import Path

import pytest

from alpa_explore import cli
from alpa_explore.course.site import build as site_build
from alpa_explore.course.site.execute import RunCell
from tests.course.example_lesson import CELLS, write


@pytest.fixture
def notebooks(tmp_path: Path) -> Path:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    write(folder / "03_example.ipynb", CELLS)
    write(folder / "04_more.ipynb", [("markdown", "# 04 · More")])
    return folder


def test_lessons_are_listed(notebooks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["course", "list", "--notebooks", str(notebooks), "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first["lesson"] == "03"
    assert first["minutes"] == 15
    assert first["exercises"] >= 1
    assert second["title"] == "More"
    assert cli.main(["course", "list"]) == 0
    assert "Capture a model" in capsys.readouterr().out


def test_sync_names_what_it_writes(notebooks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["course", "sync", "--notebooks", str(notebooks)]) == 0
    assert "03_example.ipynb" in capsys.readouterr().err
    assert cli.main(["course", "sync", "--notebooks", str(notebooks)]) == 0
    assert capsys.readouterr().err == ""


def test_a_website_of_one_lesson_is_written_and_named(
    notebooks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        site_build, "run_lessons", lambda lessons, *_: [[RunCell(cell=c) for c in lesson.cells] for lesson in lessons]
    )
    site = tmp_path / "site"
    command = ["course", "build", "--notebooks", str(notebooks), "-o", str(site), "--lesson", "4"]
    assert cli.main(command) == 0
    assert [path.name for path in site.glob("0*.html")] == ["04_more.html"]
    assert str(site) in capsys.readouterr().err
