"""The claims of the lessons as a table for lecturers, in notebooks/claims.ipynb; with what cells of lessons assert.

python -m tests.notebooks.claims_page
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import groupby
from pathlib import Path

from alpa_explore.course.lessons.notebook import course_folder, notebook_text, read_lessons, read_notebook, source_of
from tests.notebooks.claims import CLAIMS

PAGE = "claims.ipynb"
_TABLE = re.compile("(?<=<!-- claims -->\n\n).*(?=\n\n<!-- end of claims -->)", re.DOTALL)


def said(sentence: str, source: Callable[[], Sequence[object]]) -> str:
    """The sentence with its numbers."""
    return re.sub(r"(\d)%", r"\1 %", sentence.format(*source()))


def shown_source(source: Callable[[], Sequence[object]]) -> str:
    """What a claim is computed from, as code; of a function also what it says of itself."""
    if isinstance(source, partial):
        given = ", ".join(map(repr, source.args))
        return f"`{source.func.__name__}({given})`: {_first_line(source.func)}"
    if source.__name__ != "<lambda>":
        return f"`{source.__name__}()`: {_first_line(source)}"
    code = source.__code__
    return "; ".join(f"`{part}`" for part in _lambdas(code.co_filename)[code.co_firstlineno])


def _first_line(function: Callable[..., object]) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0].rstrip(".")


@cache
def _lambdas(file: str) -> dict[int, list[str]]:
    """Line of a list of claims -> the code of what the lambda that begins in it returns, by parts."""
    text = Path(file).read_text(encoding="utf-8")
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Lambda):
            parts = node.body.elts if isinstance(node.body, ast.List) else [node.body]
            found[node.lineno] = [" ".join((ast.get_source_segment(text, part) or "").split()) for part in parts]
    return found


def _plain(sentence: str) -> str:
    """A sentence as a cell of a table: without marks, columns and commands of formulas."""
    return " ".join(re.sub(r"\\[a-z]+|[*{}`|]", " ", sentence).split())


def claims_table() -> str:
    """Every claim with its source, by lesson; and how many assertions the cells of each lesson have."""
    lessons = {lesson.number: lesson for lesson in read_lessons(course_folder())}
    asserted = {
        number: sum(
            isinstance(node, ast.Assert)
            for cell in lesson.cells
            if cell.kind == "code"
            for node in ast.walk(ast.parse(cell.source))
        )
        for number, lesson in lessons.items()
    }
    every = sorted(CLAIMS, key=lambda claim: claim[0])
    parts = [
        f"{len(CLAIMS)} sentences are computed again by tests, and the cells of the lessons assert "
        f"{sum(asserted.values())} times what the text beside them says."
    ]
    for number, own in groupby(every, key=lambda claim: claim[0]):
        lesson = lessons[number]
        parts.append(f"### {number} · {lesson.title}")
        parts.append(f"[Its cells]({lesson.path.name}) have {asserted[number]} assertions.")
        rows = [f"| {_plain(said(text, source))} | {shown_source(source)} |" for _, text, source in own]
        parts.append("\n".join(["| the lesson says | computed as |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def page_text() -> str:
    """The page of claims as it should be."""
    notebook = read_notebook(course_folder() / PAGE)
    for cell in notebook["cells"]:
        cell["source"] = _TABLE.sub(lambda _: claims_table(), source_of(cell)).splitlines(keepends=True)
    return notebook_text(notebook)


if __name__ == "__main__":
    (course_folder() / PAGE).write_text(page_text(), encoding="utf-8")
