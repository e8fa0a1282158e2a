"""Progress: one line that changes on a terminal, a few lines in a log."""

import io
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpa_explore.cli import progress_line
from alpa_explore.cli.progress_line import ProgressLine, describe, duration
from alpa_explore.errors import CancelledError
from alpa_explore.execution.progress import Progress
from tests.waiting import until


class Stream(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def run(stream: Stream, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> str:
    """100 tasks, one a second, in each of two passes."""
    monkeypatch.setattr(progress_line.time, "monotonic", lambda: clock[0])
    with ProgressLine(stream) as line:
        line.say("planning")
        for name in ("sharding", "memory"):
            for done in range(101):
                clock[0] += 1.0
                line(Progress(pass_name=name, done=done, total=100, elapsed_seconds=float(done)))
    return stream.getvalue()


def test_a_log_gets_a_line_every_four_seconds_and_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = run(Stream(terminal=False), [0.0], monkeypatch).splitlines()
    assert lines[0] == "planning"
    assert lines[1].startswith("sharding: 0 of 100")
    assert len(lines) == 1 + 2 * 26
    assert lines[-1] == "memory: 100 of 100 (100 %), 100 s"
    assert not any("\x1b" in line for line in lines)


def test_a_terminal_gets_one_changing_line_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    text = run(Stream(terminal=True), [0.0], monkeypatch)
    assert text.count("\n") == 3
    assert text.count("\r\x1b[2K") == 202
    shown = [part.removeprefix("\x1b[2K").rstrip("\n") for part in text.split("\r")[1:]]
    assert all(len(part.split("\n")[0]) < 30 for part in shown)


def test_what_was_known_already_is_not_shown() -> None:
    stream = Stream(terminal=False)
    with ProgressLine(stream) as line:
        line(Progress(pass_name="sharding", done=0, total=0, elapsed_seconds=0.0))
    assert stream.getvalue() == ""


def test_the_time_left_is_named() -> None:
    found = describe(Progress(pass_name="sharding", done=312, total=420, elapsed_seconds=12.0))
    assert found == "sharding: 312 of 420 (74 %), 12 s, 4.2 s left"


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, "0.0 s"), (75.4, "75 s"), (725.0, "12 min 5 s")])
def test_durations(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_a_pass_that_counts_nothing_is_said_again_every_four_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = [0.0], Stream(terminal=False)
    monkeypatch.setattr(progress_line.time, "monotonic", lambda: clock[0])
    line = ProgressLine(stream)
    line.say("planning")
    for second in range(1, 6):
        clock[0] = float(second)
        line.beat()
    line(Progress(pass_name="capture", done=0, total=0, elapsed_seconds=0.0))
    for second in range(6, 14):
        clock[0] = float(second)
        line.beat()
    line(Progress(pass_name="sharding", done=1, total=4, elapsed_seconds=1.0))
    for second in range(14, 18):
        clock[0] = float(second)
        line.beat()
    assert stream.getvalue().splitlines() == [
        "planning",
        "preparing: 4.0 s",
        "capture: 3.0 s",
        "capture: 7.0 s",
        "sharding: 1 of 4 (25 %), 1.0 s, 3.0 s left",
        "sharding: 1 of 4 (25 %), 5.0 s, 15 s left",
    ]
    assert line.where == "after 17 s, in sharding: 1 of 4 (25 %), 5.0 s"


def test_a_terminal_shows_a_pass_that_counts_nothing_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = [0.0], Stream(terminal=True)
    monkeypatch.setattr(progress_line.time, "monotonic", lambda: clock[0])
    line = ProgressLine(stream)
    line(Progress(pass_name="capture", done=0, total=0, elapsed_seconds=0.0))
    for second in (1, 2):
        clock[0] = float(second)
        line.beat()
    assert stream.getvalue() == "\r\x1b[2Kcapture: 1.0 s\r\x1b[2Kcapture: 2.0 s"


def test_the_beat_needs_no_call_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(progress_line, "LOG_SECONDS", 0.0)
    stream = Stream(terminal=False)
    with ProgressLine(stream) as line:
        line(Progress(pass_name="capture", done=0, total=0, elapsed_seconds=0.0))
        until(lambda: "capture" in stream.getvalue(), "a line that nobody asked for")


@given(st.lists(st.tuples(st.integers(1, 90), st.sampled_from("abc"), st.integers(0, 3)), max_size=120), st.booleans())
def test_whatever_the_work_reports_no_two_lines_are_more_than_five_seconds_apart(
    reports: list[tuple[int, str, int]], terminal: bool
) -> None:
    """Reports of passes, with and without tasks, each some tenths of a second after the one before, or none for long; a
    beat each second. The clock is counted: no test waits."""
    clock, written = [0.0], [0.0]

    class Timed(Stream):
        def write(self, text: str) -> int:
            written.append(clock[0])
            return super().write(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress_line.time, "monotonic", lambda: clock[0])
        line = ProgressLine(Timed(terminal=terminal))
        line.say("planning")
        tenths = 0
        for after, name, total in reports:
            for tenth in range(tenths + 1, tenths + after + 1):
                clock[0] = tenth / 10
                if tenth % round(10 * progress_line.BEAT_SECONDS) == 0:
                    line.beat()
            tenths += after
            line(Progress(pass_name=name, done=min(1, total), total=total, elapsed_seconds=clock[0]))
    written.append(clock[0])
    assert max(b - a for a, b in pairwise(written)) <= 5.0


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "mlp-tiny", "--cluster", "1x2:a100", "--no-cache"],
        ["layouts", "llama-3-8b", "--cluster", "1x8:h100", "--global-batch", "128", "--no-cache"],
    ],
)
def test_the_first_line_comes_before_anything_large_is_imported(words: list[str]) -> None:
    """torch alone takes seconds: a terminal that stays empty for so long looks as if the command hung."""
    script = f"""
import os, sys
class First:
    def isatty(self): return False
    def flush(self): pass
    def write(self, text):
        heavy = {{"torch", "numba", "highspy", "distributed", "pandas", "plotly"}} & set(sys.modules)
        print(text.split()[0], *sorted(heavy), flush=True)
        os._exit(0)
sys.stderr = First()
from alpa_explore.cli import main
main({words!r})
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() in (["planning"], ["pricing"]), done


@pytest.mark.parametrize("error", [KeyboardInterrupt(), CancelledError("a", found="b", remedy="c")])
def test_work_that_is_stopped_says_how_far_it_was(error: BaseException) -> None:
    stream = Stream(terminal=False)

    def work() -> None:
        with ProgressLine(stream) as line:
            line(Progress(pass_name="sharding", done=1, total=4, elapsed_seconds=1.0))
            raise error

    with pytest.raises(type(error)):
        work()
    assert "stopped after 0.0 s, in sharding: 1 of 4 (25 %), 1.0 s" in stream.getvalue().splitlines()[-1]
