"""Write the course as a website: all lessons are run first, then the folder appears as a whole or not at all."""

from __future__ import annotations

import argparse
import base64
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from plotly.offline import get_plotlyjs

from alpa_explore.course.lessons.notebook import Cell, Lesson, read_lesson, read_lessons
from alpa_explore.course.lessons.sync import with_table
from alpa_explore.course.site.execute import RunCell, run_lessons
from alpa_explore.course.site.markdown import code_styles, markdown_html
from alpa_explore.course.site.page import GLOSSARY, INDEX, SCRIPTS, WHAT_IF, Site, page_html, title_of
from alpa_explore.course.site.reference import reference_text
from alpa_explore.course.site.what_if import what_if_tables
from alpa_explore.course.site.words import index_script, sections_of, terms_of
from alpa_explore.errors import CourseError

MARK = ".alpa-explore-course"
"""A file that says that the folder is a website of the course, which may be replaced."""
_PAGES = (INDEX, GLOSSARY, "lecturer", "project", "claims")
_FOLDERS = ("images", "pytorch")
"""Beside the notebooks, what their texts show and link."""
_REFERENCE = "reference"
_SEARCH = "search-index.js"
_FONT = "font/stix-two-math.woff2"
"""STIX Two Math (SIL Open Font License), with the signs that `formulas` can write."""
Report = Callable[[str], None]


def build_site(
    notebooks: Path,
    output: Path,
    numbers: Sequence[str] = (),
    *,
    priced: Mapping[str, Sequence[int]] | None = None,
    commands: Mapping[str, argparse.ArgumentParser] | None = None,
    repository: str = "",
    report: Report = lambda _: None,
) -> Path:
    """Run the lessons of a folder (or those with these numbers), and write the website to `output`.

    `priced` are the models of the page that prices layouts, with their numbers of nodes; `commands` those of the
    reference. Without them the website has no such page. `repository` is the address of the source, which pages link.
    CourseError names a lesson that fails, or the folder that cannot be written; then `output` is as it was.
    """
    target = Path(os.path.realpath(output))
    lessons = read_lessons(notebooks, numbers)
    pages = [read_lesson(path) for name in _PAGES if (path := notebooks / f"{name}.ipynb").is_file()]
    terms = terms_of(next((page for page in pages if page.name == GLOSSARY), None))
    data: dict[str, Mapping[str, object]] = {}
    if priced:
        pages.append(_page(WHAT_IF, _asset("what_if.md")))
        data[WHAT_IF] = {"whatIf": what_if_tables(priced)}
        report("priced the layouts of the live what-if")
    if commands:
        pages.append(_page(_REFERENCE, reference_text(commands)))
    site = Site(lessons=lessons, pages=pages, terms=terms, repository=repository)
    for page in (*lessons, *pages):
        _check_texts(page)
    made = _folder_beside(target)
    try:
        with tempfile.TemporaryDirectory(prefix="alpa-course-") as work:
            runs = run_lessons(lessons, Path(work), lambda lesson: report(f"ran {lesson.name}"))
        sections: list[list[str]] = []
        shown = [*zip(lessons, runs, strict=True), *((page, _as_read(page, lessons)) for page in pages)]
        for page, cells in shown:
            own = data.get(page.name)
            written = page_html(cells, page, site, data=own, scripts=[f"{page.name}.js"] if own else ())
            _write(made / f"{page.name}.html", written.html)
            sections += sections_of(page.name, title_of(page), written.body)
        for script in (*SCRIPTS, *(f"{name}.js" for name in data)):
            _write(made / script, _asset(script))
        _write(made / _SEARCH, index_script(sections))
        _write(made / "site.css", f"{_asset('site.css')}\n{_font_face()}\n{code_styles()}\n")
        _write(made / "plotly.min.js", get_plotlyjs())
        _write(made / MARK, "Made by `alpa-explore course build`.\n")
        for name in _FOLDERS:
            if (folder := notebooks / name).is_dir():
                shutil.copytree(folder, made / name, ignore=shutil.ignore_patterns("__pycache__"))
        (made / "notebooks").mkdir()
        for page in (*lessons, *pages):
            if page.path.is_file():
                shutil.copy(page.path, made / "notebooks")
        _replace(made, target)
    except OSError as error:
        raise _cannot(target, str(error.strerror or error)) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target


def _page(name: str, text: str) -> Lesson:
    """A page that no notebook holds."""
    title = text.partition("\n")[0].removeprefix("# ")
    cell = Cell(kind="markdown", source=text, metadata={})
    path = Path(f"{name}.ipynb")
    return Lesson(path=path, number="", title=title, goals=(), prerequisites=(), cells=(cell,))


def _check_texts(page: Lesson) -> None:
    """Before the long work: every text can be shown. CourseError names the notebook."""
    for cell in page.cells:
        if cell.kind == "markdown":
            try:
                markdown_html(cell.source)
            except CourseError as error:
                raise CourseError(f"{error.what} ({page.name})", found=error.found, remedy=error.remedy) from error


def _as_read(page: Lesson, lessons: Sequence[Lesson]) -> list[RunCell]:
    """The cells of a page that is no lesson: what stands in it, with the table of the lessons that are built."""
    return [RunCell(cell=replace(cell, source=with_table(cell.source, lessons))) for cell in page.cells]


def _folder_beside(target: Path) -> Path:
    """An empty folder on the same disk, made before the long work: where this fails, so would writing."""
    if target.exists() and not target.is_dir():
        raise _cannot(target, "this is a file")
    if target.is_dir() and any(target.iterdir()) and not (target / MARK).is_file():
        raise CourseError(
            "The website was not written",
            found=f"{target} holds other files",
            remedy="Name a new folder, or an empty one, or a website of the course, which is replaced.",
        )
    if target.is_dir() and not os.access(target, os.W_OK):
        raise _cannot(target, "the folder is read-only")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        made.chmod(0o755)
    except OSError as error:
        raise _cannot(target, str(error.strerror or error)) from error
    return made


def _replace(made: Path, target: Path) -> None:
    """Put the new folder in the place of the old one, which is removed when the new one is there."""
    if not target.exists():
        made.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    target.rename(old / "old")
    try:
        made.rename(target)
    except OSError:
        (old / "old").rename(target)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _font_face() -> str:
    """The font of formulas, as data: a page that is opened from a file may load no font beside it."""
    font = base64.b64encode((files(__package__) / _FONT).read_bytes()).decode()
    return f'@font-face {{ font-family: "STIX Two Math"; src: url(data:font/woff2;base64,{font}) format("woff2"); }}'


def _cannot(target: Path, why: str) -> CourseError:
    return CourseError(
        "The website was not written",
        found=f"{target}: {why}",
        remedy="Name a folder in which you may write: -o FOLDER.",
    )
