"""Tests use what a package says it has: a name with an underscore may change without a word to anyone."""

import ast
import re

import pytest

from tests.architecture.sources import PACKAGES, files, name_of, syntax_tree

OTHERS = {"_css", "_esm", "_ipython_display_", "_repr_html_", "_repr_mimebundle_", "_replace", "_version"}
"""Names of IPython, anywidget, named tuples and torch, which are public there."""


def is_private(name: str) -> bool:
    return name.startswith("_") and name.strip("_") != "" and not name.startswith("__") and name not in OTHERS


def defined(tree: ast.Module) -> set[str]:
    """The private functions, classes, variables and attributes that a module defines."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return {name for name in names if is_private(name)}


def used(tree: ast.Module) -> set[str]:
    """The private names that a module takes from elsewhere: by import, as an attribute, or in the text of a patch."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("alpa_explore"):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") not in ("self", "cls"):
            names.add(node.attr)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("setattr", "delattr", "object"):
            texts = [a.value for a in node.args[:2] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            names |= {text.rpartition(".")[2] for text in texts}
    return {name for name in names if is_private(name)}


def test_no_test_uses_a_private_name() -> None:
    ours = set().union(*(defined(syntax_tree(path)) for path in files(".py", folders=PACKAGES)))
    tests = [path for path in files(".py", folders=("tests",)) if ours & set(re.findall(r"\w+", path.read_text()))]
    hits = {name_of(path): used(syntax_tree(path)) & ours for path in tests}
    assert {name: names for name, names in hits.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from alpa_explore.plans.plan import _hidden", {"_hidden"}),
        ("module._hidden(1)", {"_hidden"}),
        ("monkeypatch.setattr(module, '_hidden', None)", {"_hidden"}),
        ("monkeypatch.setattr('alpa_explore.plans._hidden', None)", {"_hidden"}),
        ("self._own; from tests.plans import _helper; point._replace(x=1); a.__name__; _ = b", set()),
    ],
)
def test_the_search_for_private_names_finds_them(source: str, expected: set[str]) -> None:
    assert used(ast.parse(source)) == expected


def test_definitions_are_found() -> None:
    source = "_a = 1\ndef _f():\n  self._b = _c\nclass _D: _e: int = 0\n__all__ = []"
    assert defined(ast.parse(source)) == {"_a", "_f", "_b", "_D", "_e"}
