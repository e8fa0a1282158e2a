"""What Binder (repo2docker) reads agrees with the package and with the course."""

import json
import os
import tomllib
from pathlib import Path

from tests.architecture.sources import ROOT

BINDER = ROOT / "binder"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_binder_installs_the_torch_that_the_package_asks_for() -> None:
    wanted = next(name for name in PROJECT["dependencies"] if name.startswith("torch=="))
    lines = (BINDER / "requirements.txt").read_text().splitlines()
    assert f"{wanted}+cpu" in lines
    assert lines[-1] == ".[hf]", "the package itself with what lesson 14 needs, from the repository's root"
    assert (BINDER / "runtime.txt").read_text().strip() == "python-" + PROJECT["requires-python"].removeprefix(">=")


def test_binder_opens_in_a_notebook_that_is_there() -> None:
    config = json.loads((BINDER / "jupyter_server_config.json").read_text())
    (address,) = {part["default_url"] for part in config.values()}
    assert (ROOT / address.removeprefix("/lab/tree/")).is_file()


def test_what_binder_runs_after_the_install_can_be_run_and_finds_its_files() -> None:
    script = BINDER / "postBuild"
    assert os.access(script, os.X_OK)
    words = [word for line in script.read_text().splitlines() if not line.startswith("#") for word in line.split()]
    named = [Path(word) for word in words if word.startswith(("binder/", "notebooks/"))]
    assert len(named) == 2
    assert all((ROOT / path).is_file() for path in named)
