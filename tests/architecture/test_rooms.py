"""The house: small rooms, each with a guide; no pragmas; no state in modules."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.imports import children, import_graph, modules, packages
from tests.architecture.sources import PACKAGES, ROOT, files, name_of, statements, syntax_tree

MOST_FILES = 14
"""About a dozen Python files in a folder, its guide included."""
MOST_WORDS = 1_500
LEAST_LINES = 60
MOST_SMALL = 15
"""How many modules the list below may name: this number only falls."""
SMALL = {
    "a command, a file each": "cli.__main__ cli.coverage cli.planning.export cli.planning.report cli.planning.show "
    "cli.running.logs cli.models cli.app",
    "a family of rules, a file each": "sharding.rules.recurrence",
    "a figure, a file each": "figures.course.planning.step figures.course.training.coverage "
    "figures.course.training.resharding",
    "arithmetic that is tested by itself": "layering.limbs",
    "called by name, from a website": "course.site.saved_plan",
    "an element of the page, with its own script": "_widgets.elements.message_order",
}
"""Why modules of fewer lines with one importer stand alone: reason -> their names, without `alpa_explore.`."""
MOST_CONCEPTS = 30
"""Classes of one package that others import, which a reader of its users has to know: this number only falls."""
NOT_LISTED = "figures intra_op iopddl"
"""Packages whose guides do not list theirs yet: this list only gets shorter."""
IGNORE = re.compile(r"#\s*type:\s*ignore(?P<codes>\[[\w, -]+\])?(?P<rest>[^\n]*)")
CONTAINERS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
CHANGES = {
    "add",
    "append",
    "appendleft",
    "clear",
    "discard",
    "extend",
    "insert",
    "pop",
    "popitem",
    "remove",
    "setdefault",
    "update",
}


def test_a_folder_holds_about_a_dozen_files() -> None:
    folders = [path for package in PACKAGES for path in [ROOT / package, *(ROOT / package).rglob("*")] if path.is_dir()]
    counts = {name_of(folder): len(list(folder.glob("*.py"))) for folder in folders}
    assert {name: count for name, count in counts.items() if count > MOST_FILES} == {}, "give some of them a room"


@pytest.mark.parametrize("package", packages(1))
def test_the_guide_of_a_room_names_all_that_is_in_it(package: str) -> None:
    guide = ast.get_docstring(syntax_tree(modules()[package])) or ""
    words = set(re.findall(r"\w+", guide))
    assert sorted(set(children(import_graph(), package)) - words - {"__main__"}) == []


@cache
def concepts() -> dict[str, set[str]]:
    """Package -> its classes, errors apart, that other packages import."""
    found: dict[str, set[str]] = {}
    for name, path in modules().items():
        for node in statements(syntax_tree(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("alpa_explore."):
                package = ".".join((node.module or "").split(".")[:2])
                if modules()[package].name == "__init__.py" and not f"{name}.".startswith(f"{package}."):
                    names = [a.name for a in node.names if a.name[0].isupper() and not a.name.isupper()]
                    found.setdefault(package, set()).update(n for n in names if not n.endswith("Error"))
    return {package: names for package, names in found.items() if names}


def test_the_guide_of_a_package_lists_its_concepts_and_the_list_is_short() -> None:
    listed = {}
    for package in concepts():
        guide = ast.get_docstring(syntax_tree(modules()[package])) or ""
        listed[package] = set(re.findall(r"\w+", guide.partition("Concepts that others use:")[2]))
    missing = {f"alpa_explore.{name}" for name in NOT_LISTED.split()}
    assert {package for package, names in listed.items() if not names} == missing
    assert {p: names ^ listed[p] for p, names in concepts().items() if listed[p] not in (set(), names)} == {}
    assert max(map(len, concepts().values())) <= MOST_CONCEPTS


def of_one_use(least: int = LEAST_LINES) -> set[str]:
    """The modules with fewer lines that one module imports, or none; guides are no modules."""
    users: dict[str, set[str]] = {name: set() for name, path in modules().items() if path.name != "__init__.py"}
    for name, targets in import_graph().items():
        for target in targets & users.keys():
            users[target].add(name)
    return {name for name, found in users.items() if len(found) <= 1 and lines_of(name) < least}


def lines_of(name: str) -> int:
    return len(modules()[name].read_text().splitlines())


def test_a_small_module_of_one_use_stands_in_that_use_or_has_a_reason() -> None:
    named = [name for names in SMALL.values() for name in names.split()]
    known = {f"alpa_explore{'' if name.startswith('_') else '.'}{name}" for name in named}
    assert of_one_use() - known == set(), "merge it with the module that imports it"
    assert known - of_one_use() == set(), "it needs no reason any more: the list only shrinks"
    assert len(known) <= MOST_SMALL, "the list only shrinks"


def test_the_search_for_modules_of_one_use_finds_them() -> None:
    assert "alpa_explore.models.catalog" not in of_one_use(least=10**6), "many import it"
    assert {"alpa_explore.models.images", "alpa_explore.models.moe"} <= of_one_use(least=10**6)
    assert "alpa_explore.models.moe" not in of_one_use()


def test_the_architecture_can_be_read_at_one_sitting() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().split()) <= MOST_WORDS


def test_the_formatter_is_never_told_to_look_away() -> None:
    pragma = re.compile(r"#\s*fmt:|#\s*yapf:|#\s*isort:")
    own = Path(__file__)
    assert [name_of(path) for path in files(".py") if path != own and pragma.search(path.read_text())] == []


def unexplained(source: str) -> list[str]:
    """The `type: ignore` comments without a code or without a reason."""
    return [m[0] for m in IGNORE.finditer(source) if not (m["codes"] and re.search(r"#\s*\S+ \S+", m["rest"]))]


def test_types_are_ignored_only_with_a_reason() -> None:
    paths = files(".py", folders=PACKAGES)
    assert {name_of(path): found for path in paths if (found := unexplained(path.read_text()))} == {}


def test_the_search_for_ignored_types_finds_them() -> None:
    assert unexplained("x = f()  # type: ignore\ny = g()  # type: ignore[arg-type]\n") != []
    assert unexplained("x = f()  # type: ignore[arg-type]  # numba types this call\n") == []


def state(tree: ast.Module) -> set[str]:
    """Names of a module that hold a mutable value which some function changes."""
    held = set()
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = getattr(node, "value", None)
        made = isinstance(value, CONTAINERS) or (
            isinstance(value, ast.Call)
            and getattr(value.func, "attr", getattr(value.func, "id", ""))
            in {
                "dict",
                "list",
                "set",
                "defaultdict",
                "deque",
                "Counter",
                "count",
                "OrderedDict",
                "WeakKeyDictionary",
                "WeakValueDictionary",
            }
        )
        held |= {target.id for target in targets if made and isinstance(target, ast.Name)}

    def name(node: ast.AST) -> str:
        return node.id if isinstance(node, ast.Name) else ""

    changed = set()
    for function in ast.walk(tree) if held else ():  # few modules hold anything
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
                changed.add(name(node.value))
            elif isinstance(node, ast.AugAssign):
                changed.add(name(node.target))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
                changed.add(name(node.func.value))
            elif isinstance(node, ast.Call) and name(node.func) == "next" and node.args:
                changed.add(name(node.args[0]))
            elif isinstance(node, ast.Global):
                changed |= set(node.names)
    return held & changed


def test_modules_keep_no_state() -> None:
    found = {f"{module}.{name}" for module, path in modules().items() for name in state(syntax_tree(path))}
    assert found == set(), "pass the value on"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = {}\ndef f(): x['a'] = 1", {"x"}),
        ("x: list[int] = []\ndef f(): x.append(1)", {"x"}),
        ("from itertools import count\nn = count()\ndef f(): return next(n)", {"n"}),
        ("x = set()\ndef f():\n    global x\n    x |= {1}", {"x"}),
        ("x = {'a': 1}\ndef f(): return x['a']", set()),
        ("def f():\n    x = {}\n    x['a'] = 1", set()),
    ],
)
def test_the_search_for_state_finds_it(source: str, expected: set[str]) -> None:
    assert state(ast.parse(source)) == expected
