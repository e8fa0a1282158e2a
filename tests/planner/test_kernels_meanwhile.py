"""Kernels are compiled in another process while a model is captured, and then nothing is left to compile for a plan."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import alpa_explore as ax
from alpa_explore.planner import kernels_meanwhile as module
from alpa_explore.planner.kernels_meanwhile import kernels_meanwhile
from alpa_explore.pricing.warm_up import COMPOSITION_KERNELS, warm_up
from tests.waiting import until

SCRIPT = """
import threading
from alpa_explore.numerics.compiled import compilation_reported
from alpa_explore.planner.kernels_meanwhile import kernels_meanwhile
from alpa_explore.pricing.warm_up import COMPOSITION_KERNELS
from tests.waiting import until
import alpa_explore as ax

with kernels_meanwhile():
    until(lambda: any(kernel.on_disk for kernel in COMPOSITION_KERNELS), "the first kernel is on disk")
assert all(kernel.on_disk for kernel in COMPOSITION_KERNELS)
reports = []
with compilation_reported(reports.append):
    ax.plan("gpt-tiny", "1x4:v100", num_microbatches=8, cache=False, scheduler="serial")
for thread in threading.enumerate():
    if thread.name == "alpa-explore compilation":
        thread.join()  # it ends when it has passed on all reports
assert not reports, "a kernel of the plan was compiled with other types than those of warm_up"
print("done")
"""


@pytest.mark.slow
def test_what_is_compiled_ahead_is_all_that_a_plan_calls() -> None:
    warm_up()
    before = [tuple(kernel.dispatcher.signatures) for kernel in COMPOSITION_KERNELS]
    assert all(before)
    ax.plan("gpt-tiny", "1x4:v100", num_microbatches=8, cache=False, scheduler="serial")
    assert [tuple(kernel.dispatcher.signatures) for kernel in COMPOSITION_KERNELS] == before


@pytest.mark.sweep(kept=0)
@pytest.mark.slow
def test_a_plan_after_it_compiles_nothing(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip() == "done", run.stderr


class Endless:
    """A process that does not end until it is killed."""

    def __init__(self, *_: object, **__: object) -> None:
        self.killed = False

    def poll(self) -> int | None:
        return -9 if self.killed else None

    def kill(self) -> None:
        self.killed = True

    def wait(self) -> int:
        return -9


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> tuple[Endless, threading.Event]:
    """The process that is started, and whether it is."""
    process, started = Endless(), threading.Event()

    def popen(*_: object, **__: object) -> Endless:
        started.set()
        return process

    nowhere = SimpleNamespace(on_disk=False, dispatcher=SimpleNamespace(stats=SimpleNamespace(cache_path="")))
    monkeypatch.setattr(module, "available_cores", lambda: 2)
    monkeypatch.setattr(module, "COMPOSITION_KERNELS", [nowhere])
    monkeypatch.setattr(module.subprocess, "Popen", popen)
    return process, started


def test_the_process_ends_when_the_plan_is_cancelled(endless: tuple[Endless, threading.Event]) -> None:
    process, started = endless
    cancel = threading.Event()
    with kernels_meanwhile(cancel):
        until(started.is_set, "the process is started")
        cancel.set()
    assert process.killed


def test_the_process_ends_with_an_error(endless: tuple[Endless, threading.Event]) -> None:
    process, started = endless

    def fail() -> None:
        with kernels_meanwhile():
            until(started.is_set, "the process is started")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert process.killed


def test_a_short_block_starts_nothing(endless: tuple[Endless, threading.Event]) -> None:
    with kernels_meanwhile():
        pass
    assert not endless[1].is_set()
