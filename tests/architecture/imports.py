"""Every import of our own modules by our own modules: at the top, in functions, and under TYPE_CHECKING."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.architecture.sources import PACKAGES, ROOT, statements, syntax_tree


def module_name(path: Path, root: Path) -> str:
    """The dotted name of a file below the folder that holds its package."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> Mapping[str, Path]:
    """Dotted name -> file, of both packages."""
    homes = [(ROOT / package).parent for package in PACKAGES]
    return {
        module_name(path, home): path
        for package, home in zip(PACKAGES, homes, strict=True)
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def imported(tree: ast.Module, known: Mapping[str, object]) -> Iterator[str]:
    """The modules among `known` that a file imports anywhere."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in known or node.module in known:
                    yield inner if inner in known else node.module


def packages(least: int) -> list[str]:
    """The packages with at least so many modules or rooms, by name alone: pytest asks before it runs a test."""
    names: Mapping[str, frozenset[str]] = dict.fromkeys(modules(), frozenset())
    return [name for name in sorted(names) if len(children(names, name)) >= least]


@cache
def import_graph() -> Mapping[str, frozenset[str]]:
    """Module -> the modules that it imports."""
    known = modules()
    return {name: frozenset(imported(syntax_tree(path), known)) - {name} for name, path in known.items()}


def children(graph: Mapping[str, frozenset[str]], package: str) -> dict[str, set[str]]:
    """The same for the direct children of a package: each stands for all that is in it."""
    prefix = package + "."

    def child(name: str) -> str:
        return name.removeprefix(prefix).split(".")[0]

    of_child: dict[str, set[str]] = {child(name): set() for name in graph if name.startswith(prefix)}
    for name, targets in graph.items():
        if name.startswith(prefix):
            inside = {child(target) for target in targets if target.startswith(prefix)}
            of_child[child(name)] |= inside - {child(name)}
    return of_child


def circle(graph: Mapping[str, frozenset[str] | set[str]]) -> list[str]:
    """Some modules that import each other in a circle; empty where there is none."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        for target in sorted(graph.get(name, ())):
            if found := visit(target, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(graph) if (found := visit(name, []))), [])
