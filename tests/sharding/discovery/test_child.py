"""A function in a child process: its result, its errors, and the report when it dies."""

import ctypes
import os
import signal
import threading

import pytest

from alpa_explore.sharding.discovery.discover import CrashError, run_in_child
from tests.waiting import limit_seconds


def run(function, seconds=None):
    return run_in_child(function, limit_seconds=seconds or limit_seconds())


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_results_are_returned_and_the_parent_is_not_changed():
    values = []
    before = open_files()
    assert run(lambda report: values.append(1) or {"large": b"x" * 1_000_000}) == {"large": b"x" * 1_000_000}
    assert values == []
    assert open_files() == before


def test_an_error_is_returned_as_its_text():
    with pytest.raises(RuntimeError, match="ZeroDivisionError: division by zero"):
        run(lambda report: 1 / 0)


@pytest.mark.parametrize("die", [lambda: ctypes.string_at(0), lambda: os._exit(3), os.abort])
def test_a_crash_names_the_last_step(die, capfd):
    with pytest.raises(CrashError, match="crashed") as caught:
        run(lambda report: (report(0), report(7), die()))
    assert (caught.value.step, caught.value.late) == (7, False)
    assert capfd.readouterr().err == ""


def test_a_child_that_takes_too_long_is_ended():
    with pytest.raises(CrashError, match="took too long"):
        run(lambda report: signal.pause(), seconds=0.2)


def test_threads_may_each_have_a_child():
    results = []
    threads = [threading.Thread(target=lambda n=n: results.append(run(lambda report: n))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(6))
