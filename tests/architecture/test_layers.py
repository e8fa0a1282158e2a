"""design.md section 4 as a test: who may import whom, and what importing costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import ROOT

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
