"""The JavaScript modules and the style sheet of the widgets."""

from __future__ import annotations

from pathlib import Path

STATIC = Path(__file__).parents[1] / "static"


def module_with_helpers(*names: str) -> str:
    """JavaScript files of `static/` as one module, with the text of helpers.js before them.

    anywidget loads each module from a string of its own, so that a module cannot import another file.
    """
    return "\n".join((STATIC / file).read_text(encoding="utf-8") for file in ("helpers.js", *names))
