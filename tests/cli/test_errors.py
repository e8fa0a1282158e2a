"""How a command tells an error: one line, and below it what is known beside it."""

import sys

import pytest

from alpa_explore import cli
from alpa_explore.errors import RunError


def test_the_log_of_a_failed_rank_stands_below_the_error_line_by_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(_options: object) -> int:
        error = RunError("Rank 1 was killed", found="signal 9", remedy="Look at its log.")
        error.add_note("step 0: 3 ms\nstep 1: 2 ms\x1b[2J")
        raise error

    monkeypatch.setattr(cli.models, "run", failing)
    assert cli.main(["models"]) == 1
    first, *log = capsys.readouterr().err.splitlines()
    assert first == "alpa-explore: Rank 1 was killed: signal 9. Look at its log."
    assert [line.strip()[:12] for line in log] == ["step 0: 3 ms", "step 1: 2 ms"]
    assert "\x1b" not in log[1]


def test_a_full_disk_behind_stdout_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert cli.main(["models"]) == 1
    told = capsys.readouterr().err
    assert "The output cannot be written: No space left on device. Make room" in told
    assert "bug" not in told
