"""The files that the architecture tests read."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("alpa_explore", "widgets/alpa_explore_widgets")
FOLDERS = ("alpa_explore", "widgets", "tests", "benchmarks", "notebooks", "binder", ".ci")


def files(*suffixes: str, folders: tuple[str, ...] = FOLDERS) -> list[Path]:
    """Our own files with one of these suffixes, in a fixed order."""
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes and not {"__pycache__", ".ipynb_checkpoints"} & set(path.parts)
    )


@cache
def syntax_tree(path: Path) -> ast.Module:
    """The parsed source of a Python file."""
    return ast.parse(path.read_text(), filename=str(path))


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements of a module, also those inside others; without the expressions in them, nine of ten nodes."""
    inside: list[ast.AST] = [tree]
    while inside:
        node = inside.pop()
        yield node
        for part in ("body", "orelse", "handlers", "finalbody", "cases"):
            inside += getattr(node, part, ())


def name_of(path: Path) -> str:
    """The path as a reader would type it."""
    return path.relative_to(ROOT).as_posix()
