"""The digest of the code that computes what is kept changes with whatever decides the answer, and with nothing else."""

import ast
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from alpa_explore.search.profile_stages import SOLVED_BY, SOLVED_WITH
from alpa_explore.store import code_version as module
from alpa_explore.store.code_version import code_version
from alpa_explore.tracing import catalogue
from tests.architecture.sources import ROOT, syntax_tree

ONLY_WHERE = {"cloudpickle", "distributed", "platformdirs"}
"""Libraries that say where a task runs and where its answer is kept, not what it is."""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of its own: a folder with two sources and a data file, and a file beside it."""
    for name, text in {"solve/a.py": "1", "solve/inner/b.py": "2", "solve/c.json": "{}", "units.py": "3"}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(module, "PACKAGE", tmp_path)
    code_version.cache_clear()
    yield tmp_path
    code_version.cache_clear()


def digest(parts=("solve", "units.py"), distributions=()):
    """The digest as a new process would take it."""
    code_version.cache_clear()
    return code_version(parts, distributions)


@pytest.mark.parametrize("name", ["solve/a.py", "solve/inner/b.py", "solve/c.json", "units.py"])
def test_a_changed_file_gives_another_digest(package, name):
    before = digest()
    (package / name).write_text("changed")
    assert digest() != before
    assert digest() == digest()


def test_an_added_and_a_renamed_file_give_other_digests(package):
    digests = {digest()}
    (package / "solve" / "d.py").write_text("")
    digests.add(digest())
    (package / "solve" / "d.py").rename(package / "solve" / "e.py")
    digests.add(digest())
    assert len(digests) == 3


def test_text_that_moves_from_one_file_to_the_next_gives_another_digest(package):
    (package / "solve" / "a.py").write_text("x\nsolve/b.py\ny")
    before = digest()
    (package / "solve" / "a.py").write_text("x\n")
    (package / "solve" / "b.py").write_text("y")
    assert digest() != before


def test_files_that_decide_nothing_do_not_count(package):
    before = digest()
    (package / "solve" / "__pycache__").mkdir()
    (package / "solve" / "__pycache__" / "a.pyc").write_text("compiled")
    (package / "other.py").write_text("")
    assert digest() == before


def test_another_version_of_a_library_gives_another_digest(package, monkeypatch):
    versions = {"numpy": "2.0"}

    def version(distribution):
        if distribution not in versions:
            raise PackageNotFoundError(distribution)
        return versions[distribution]

    monkeypatch.setattr(module, "version", version)
    digests = {digest(distributions=("numpy", "pulp"))}
    versions["numpy"] = "2.1"
    digests.add(digest(distributions=("numpy", "pulp")))
    versions["pulp"] = "3"
    digests.add(digest(distributions=("numpy", "pulp")))
    assert len(digests) == 3


def test_a_part_that_does_not_exist_is_an_error(package):
    with pytest.raises(FileNotFoundError, match="no_such_part"):
        digest(("solve", "no_such_part"))


def module_file(name):
    """The source of a module or package of alpa_explore, None for any other name."""
    path = ROOT.joinpath(*name.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((p for p in candidates if name.startswith("alpa_explore.") and p.is_file()), None)


def imported(path):
    """The names of all modules that a source imports, at its top and in functions."""
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if module_file(inner) else node.module


def reached(name):
    """(parts of alpa_explore, libraries) that a module imports, directly or through others."""
    seen, libraries, left = set(), set(), [name]
    while left:
        name = left.pop()
        path = module_file(name)
        if path is None:
            libraries.add(name.split(".")[0])
        elif path not in seen:
            seen.add(path)
            left += imported(path)
    return {path.relative_to(ROOT / "alpa_explore").parts[0] for path in seen}, libraries - sys.stdlib_module_names


@pytest.mark.slow
def test_the_digest_of_solves_covers_everything_that_a_solve_imports():
    parts, libraries = reached("alpa_explore.search.profile_stages")
    assert parts == set(SOLVED_BY)
    assert libraries - ONLY_WHERE == set(SOLVED_WITH)


def test_the_digest_of_captured_graphs_covers_everything_that_a_capture_imports():
    parts, _ = reached("alpa_explore.tracing.catalogue")
    assert parts - {"store"} == set(catalogue.CAPTURED_BY)
