"""A small lesson in the structure of the course, with a figure that has a slider."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FIGURE = """\
from alpa_explore_widgets.course import sliders

from alpa_explore.figures.course.interactive import of_states, steady
from alpa_explore.figures.marks import bars

states = {}
for n in (1, 2, 3):
    first, second = n, 2 * n
    states[str(n)] = steady(
        [bars(["a", "b"], [first, second], "#0072B2")],
        "Two chunks",
        height=450,
    )

sliders(of_states("Bytes", "n", states))"""

CELLS: list[tuple[str, str]] = [
    ("markdown", "# 03 · Example\n\nA ring of *devices*.\n\n*15 minutes. You need nothing.*"),
    ("code", "from alpa_explore.course import exercise, points, reveal"),
    ("markdown", "## Question: a ring\n\nHow long does it take?"),
    ("markdown", "## Guess"),
    ("code", "my_guess = ..."),
    ("markdown", "## Figure"),
    ("code", FIGURE),
    ("code", 'reveal(my_guess, 0.004, "s", what="The all-reduce")'),
    ("markdown", "## Explanation\n\n$$T = 2 (n - 1) \\alpha$$\n\nwhere $\\alpha$ is the wait of a message."),
    ("code", "n, alpha = 4, 1e-3\nprint(2 * (n - 1) * alpha)"),
    ("markdown", "## Exercises"),
    ("code", 'exercise("03.1", ...)'),
    ("code", 'points("03")'),
    ("markdown", "## What we left out\n\n| what | effect |\n|---|---|\n| trees | faster for small messages |"),
]


def notebook(cells: Sequence[tuple[str, str]], **said: Any) -> dict[str, Any]:
    """The JSON of a notebook with these cells; `said` is what the lesson says of itself."""
    made = []
    for place, (kind, text) in enumerate(cells):
        cell: dict[str, Any] = {"cell_type": kind, "id": str(place), "metadata": {}}
        code = {"execution_count": None, "outputs": []} if kind == "code" else {}
        made.append(cell | code | {"source": text.splitlines(keepends=True)})
    said = said or {"goals": ["see a ring"], "prerequisites": ["02"]}
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    return {
        "cells": made,
        "metadata": {"alpa_course": said, "kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def write(path: Path, cells: Sequence[tuple[str, str]], **said: Any) -> Path:
    """Write such a notebook."""
    path.write_text(json.dumps(notebook(cells, **said), indent=1, ensure_ascii=False) + "\n")
    return path
