"""Who may import whom, at every level, and what importing costs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.imports import children, circle, import_graph, imported, packages
from tests.architecture.sources import ROOT

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
HOUSES = packages(2)
"""Packages with at least two modules or rooms."""
HEAVY = {
    "torch",
    "numpy",
    "pulp",
    "highspy",
    "dask",
    "distributed",
    "plotly",
    "ipywidgets",
    "anywidget",
    "IPython",
    "transformers",
}


def modules_after(statement: str) -> set[str]:
    """The modules that a new interpreter holds after a statement."""
    script = f"{statement}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    return set(json.loads(output))


def test_every_import_contract_is_kept() -> None:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([lint_imports, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_package_and_room_has_an_exhaustive_contract() -> None:
    held = [c for contract in CONTRACTS if contract["type"] == "layers" for c in contract["containers"]]
    assert len(held) == len(set(held))
    assert sorted(held) == HOUSES
    assert all(contract["exhaustive"] for contract in CONTRACTS if contract["type"] == "layers")


def test_what_a_library_is_forbidden_for_is_all_but_a_few() -> None:
    forbidden = [contract for contract in CONTRACTS if contract["type"] == "forbidden"]
    assert {m for contract in forbidden for m in contract["forbidden_modules"]} >= HEAVY - {"numpy", "pulp", "highspy"}
    assert all("alpa_explore" in contract["source_modules"] for contract in forbidden), "a new package is held as well"


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circle(import_graph()) == []


@pytest.mark.parametrize("package", HOUSES)
def test_no_rooms_import_each_other_in_a_circle(package: str) -> None:
    assert circle(children(import_graph(), package)) == []


def test_imports_in_functions_and_for_types_alone_are_seen() -> None:
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a.b\ndef f():\n    from a import c, d\n"
    assert set(imported(ast.parse(source), {"a": 0, "a.b": 0, "a.c": 0})) == {"a.b", "a.c", "a"}
    graph = {
        "p.a.x": frozenset({"p.b.y"}),
        "p.b.y": frozenset({"p.c"}),
        "p.c": frozenset({"p.a.z"}),
        "p.a.z": frozenset(),
    }
    assert circle(graph) == []
    assert circle(children(graph, "p")) == ["a", "b", "c"]


def test_no_package_bears_the_name_of_a_public_verb() -> None:
    """Importing a package binds its name in its parent: `ax.plan` would become a module."""
    import alpa_explore

    public = {name for name in alpa_explore.__all__ if not name.startswith("_")}
    assert public & set(children(import_graph(), "alpa_explore")) == set()
    assert [name for name in public if isinstance(getattr(alpa_explore, name), type(sys))] == []


def test_importing_the_package_takes_nothing_heavy() -> None:
    assert not modules_after("import alpa_explore") & HEAVY


def test_the_command_line_answers_help_without_torch() -> None:
    script = "import alpa_explore.cli as cli\ntry: cli.main(['--help'])\nexcept SystemExit: pass"
    result = subprocess.run(
        [sys.executable, "-c", f"{script}\nimport sys; sys.exit('torch' in sys.modules)"],
        check=False,
        capture_output=True,
    )
    assert result.returncode == 0, result.stderr.decode()


def test_every_public_name_can_be_loaded() -> None:
    import alpa_explore

    assert [name for name in alpa_explore.__all__ if getattr(alpa_explore, name) is None] == []
