"""`alpa-explore app`: voila on loopback, and a plain word where it is missing (tests/browser/test_app.py runs it)."""

import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from alpa_explore.cli.app import app_command, app_environment
from alpa_explore.errors import MissingPackageError, OptionError
from alpa_explore.runtime.folder import make_folder


@pytest.fixture
def voila(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: ModuleSpec(n, None) if n == "voila" else find(n))


def test_without_voila_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match=r"alpa-explore\[app\]"):
        app_command(no_browser=True, port=None, theme="light")


@pytest.mark.usefixtures("voila")
def test_the_command_serves_the_app_on_loopback_only_and_with_a_token() -> None:
    command = app_command(no_browser=True, port=8900, theme="dark")
    assert command[:3] == [sys.executable, "-m", "voila"]
    assert Path(command[3]).is_file()
    assert {"--Voila.ip=127.0.0.1", "--Voila.auto_token=True", "--port=8900", "--theme=dark"} < set(command)
    assert "--no-browser" in command
    assert "--no-browser" not in app_command(no_browser=False, port=None, theme="light")


def test_jupyter_finds_the_template_of_the_page_and_what_the_user_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PATH", "/theirs")
    ours, theirs = app_environment()["JUPYTER_PATH"].split(os.pathsep)
    template = Path(ours) / "voila/templates/alpa_explore/index.html.j2"
    assert "http" not in template.read_text()
    assert theirs == "/theirs"


def test_runs_of_the_app_are_kept_where_it_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALPA_EXPLORE_RUNS", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALPA_EXPLORE_RUNS", app_environment()["ALPA_EXPLORE_RUNS"])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert make_folder(None, "tiny").parent == tmp_path / "alpa-runs"


@pytest.mark.usefixtures("voila")
def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match="port"):
        app_command(no_browser=True, port=99999, theme="light")
