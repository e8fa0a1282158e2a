"""Compiled functions work where nothing can be kept on disk, and equal their Python selves."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from numba import njit

from alpa_explore.inter_op import kernels as pipeline_kernels
from alpa_explore.intra_op.composition.contraction import kernels as contraction_kernels
from alpa_explore.numerics.compiled import compilation_reported, compiled
from tests.waiting import until

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
        until(ended.is_set, "the end is reported")
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
    until(reported.is_set, "it is reported")


@compiled()
def _added(a, b):
    return a + b


@compiled(steps=lambda counts: int(counts.sum()))
def _counted(counts):
    total = 0
    for count in counts:
        for _ in range(count):
            total = _added(total, 1)
    return total


def test_few_steps_are_run_by_python_and_many_are_compiled(monkeypatch):
    monkeypatch.setattr("alpa_explore.numerics.compiled.STEPS_BEFORE_LOADING", 10)
    monkeypatch.setattr("alpa_explore.numerics.compiled.STEPS_BEFORE_COMPILING", 10)
    kernel = compiled(steps=lambda counts: int(counts.sum()))(_counted.function)
    with monkeypatch.context() as patch:
        patch.setattr(type(kernel), "dispatcher", property(lambda _: pytest.fail("numba was loaded")))
        assert kernel(np.array([2, 3])) == 5
    assert kernel(np.array([4, 7])) == 11
    assert kernel.dispatcher.signatures
    assert kernel(np.array([1])) == 1


def test_numba_is_not_loaded_for_few_steps():
    script = """
import sys
import numpy as np
from alpa_explore.inter_op.kernels import relaxed_table
table = relaxed_table(np.ones((2, 3)), np.zeros((2, 3)), np.array([1]), 2, np.empty(0, np.int64), 2.0)
assert table[0, 1] == 1 and table[0, 2] == 2, table
for _ in range(40):  # of the size that a cluster of 64 devices has: 29,000 steps
    relaxed_table(np.ones((16, 17 * 7)), np.zeros((16, 17)), 2 ** np.arange(7), 64, np.empty(0, np.int64), 2.0)
assert "numba" not in sys.modules
print("done")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "done", done.stderr


@pytest.mark.parametrize("seed", range(3))
def test_kernels_with_a_number_of_steps_are_the_same_by_python(seed):
    rng = np.random.default_rng(seed)
    costs, table = rng.random((2, 3, 7)), rng.random((2, 7, 7))
    costs[rng.random(costs.shape) < 0.2] = np.inf
    results = []
    for run in (contraction_kernels.extend.interpreted, contraction_kernels.extend.dispatcher):
        pivots, excess, extended = np.full((2, 2), -1), np.empty((2, 2, 7)), np.empty((2, 3, 7))
        run(costs, table, pivots, excess, extended)
        results.append(extended.tolist())
    assert results[0] == results[1]
    layers, devices = 5, np.array([1, 2, 4])
    latency = rng.random((3, layers, (layers + 1) * 3))
    latency[rng.random(latency.shape) < 0.2] = np.inf
    rest = (rng.random((layers, layers + 1)), devices, 8, np.array([3]), 0.9)
    for kernel, given in ((pipeline_kernels.relaxed_table, latency[0]), (pipeline_kernels.exact_tables, latency)):
        np.testing.assert_array_equal(kernel.interpreted(given, *rest), kernel.dispatcher(given, *rest))
