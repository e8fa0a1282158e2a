"""The folder of a run: one launch gets it, whoever else wants it at the same moment."""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from alpa_explore.errors import OptionError
from alpa_explore.runtime.folder import LOCK, make_folder, release_folder
from alpa_explore.runtime.launch import launch
from tests.runtime.plans import two_machines
from tests.runtime.states import ended
from tests.runtime.trained import mlp_plan

AT_ONCE = 8


def at_once(function):
    """What so many calls gave, which began at the same moment: a value or an error each."""
    gate = threading.Barrier(AT_ONCE)

    def call(_):
        gate.wait()
        try:
            return function()
        except OptionError as error:
            return error

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(call, range(AT_ONCE)))


@pytest.mark.parametrize("there", [True, False])
def test_of_launches_in_one_folder_one_gets_it_and_the_others_are_told(there, tmp_path) -> None:
    for number in range(20):
        home = tmp_path / str(number)
        if there:
            home.mkdir()
        found = at_once(lambda home=home: make_folder(home, "model"))
        assert found.count(home) == 1
        errors = [error for error in found if error != home]
        assert all("another launch is using it" in str(error) for error in errors)
        with pytest.raises(OptionError, match=rf"another launch is using it \(process {os.getpid()} on "):
            make_folder(home, "model")
        release_folder(home)
        assert make_folder(home, "model") == home, "nothing was written there"
        release_folder(home)
        (home / "a").touch()
        with pytest.raises(OptionError, match="must be empty"):
            make_folder(home, "model")
        assert [path.name for path in home.iterdir()] == ["a"]


def test_default_folders_of_one_second_differ(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ALPA_EXPLORE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(time, "strftime", lambda _: "-20261128-120000")
    found = at_once(lambda: make_folder(None, "a model"))
    assert sorted(path.name for path in found) == sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert len(set(found)) == AT_ONCE
    assert all((path / LOCK).exists() for path in found)


def test_a_second_launch_leaves_the_first_alone(tmp_path) -> None:
    home = tmp_path / "run"
    first = launch(mlp_plan(), "torchrun", folder=home, steps=2, device="cpu")
    with pytest.raises(OptionError, match="must be empty"):
        launch(mlp_plan(), "torchrun", folder=home, steps=2, device="cpu")
    ended(first)
    assert first.progress.state == "written"
    assert (home / "run.json").exists()
    assert not (home / LOCK).exists()


def test_a_launch_that_fails_before_it_wrote_anything_leaves_the_folder_free(tmp_path) -> None:
    home = tmp_path / "run"
    with pytest.raises(OptionError, match="at least one step"):
        launch(mlp_plan(), "torchrun", folder=home, steps=0, device="cpu")
    assert not home.exists()
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match="cannot be used"):
        make_folder(tmp_path / "file", "model")


def test_files_that_are_read_while_a_run_is_on_are_never_seen_half_written(tmp_path, monkeypatch) -> None:
    """Fault of 0.1.0: `run.drift()`, right after `launch`, found an empty run.json."""
    begun: list[str] = []
    write = Path.write_text
    monkeypatch.setattr(
        Path, "write_text", lambda path, *text, **how: begun.append(path.name) or write(path, *text, **how)
    )
    ended(launch(two_machines(), "torchrun", steps=2, folder=tmp_path / "run", device="cpu"))
    assert json.loads((tmp_path / "run/run.json").read_text())["ranks"] == [0, 1]
    assert "run.json" not in begun, "it was not put in place as a whole"
    assert not list((tmp_path / "run").glob("*.tmp"))
