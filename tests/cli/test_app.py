"""`alpa-explore app`: voila on loopback, and a plain word where it is missing."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from alpa_explore import cli
from alpa_explore.cli.app import app_command
from alpa_explore.errors import MissingPackageError, OptionError
from alpa_explore.runtime.launch import make_folder


@pytest.fixture
def voila(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: ModuleSpec(n, None) if n == "voila" else find(n))


def test_without_voila_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match=r"alpa-explore\[app\]"):
        app_command(no_browser=True, port=None)


@pytest.mark.usefixtures("voila")
def test_the_command_serves_the_app_on_loopback_only() -> None:
    command = app_command(no_browser=True, port=8900)
    assert command[:3] == [sys.executable, "-m", "voila"]
    assert Path(command[3]).is_file()
    assert set(command[4:]) == {"--Voila.ip=127.0.0.1", "--port=8900", "--no-browser"}
    assert "--no-browser" not in app_command(no_browser=False, port=None)


@pytest.mark.usefixtures("voila")
def test_runs_of_the_app_are_kept_where_it_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPA_EXPLORE_RUNS", "")  # so that it is put back
    monkeypatch.delenv("ALPA_EXPLORE_RUNS")
    monkeypatch.setattr("os.execv", lambda _program, _command: None)
    monkeypatch.chdir(tmp_path)
    cli.main(["app", "--no-browser"])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert make_folder(None, "tiny").parent == tmp_path / "alpa-runs"


@pytest.mark.usefixtures("voila")
def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match="port"):
        app_command(no_browser=True, port=99999)
