"""Compiled functions work where nothing can be kept on disk, and equal their Python selves."""

import subprocess
import sys
import threading

from numba import njit

from alpa_explore.numerics.compiled import compilation_reported

SCRIPT = """
from alpa_explore.numerics.compiled import compiled
assert compiled()(exec("def twice(x):\\n    return 2 * x") or twice)(21) == 42
print("done")
"""


def test_without_a_file_to_cache_beside_it_still_compiles():
    # Code that was not read from a file has no place for a cache: numba refuses, as in a folder that cannot be written.
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.stdout.strip() == "done", done.stderr


def test_compiling_is_reported_and_its_end_too():
    seen, ended = [], threading.Event()

    def report(compiling):
        seen.append(compiling)
        if not compiling:
            ended.set()

    kernel = njit(lambda x: 3 * x)
    with compilation_reported(report):
        assert kernel(7) == 21
        assert ended.wait(10)
        kernel(8)
    assert seen == [True, False]


def test_a_report_may_take_a_lock_that_a_thread_holds_while_it_compiles():
    lock, reported = threading.Lock(), threading.Event()

    def report(_compiling):
        with lock:
            reported.set()

    kernel = njit(lambda x: 5 * x)
    with compilation_reported(report), lock:
        assert kernel(7) == 35
    assert reported.wait(10)
