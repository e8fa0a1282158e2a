"""The states of a run that tests wait for, and the processes that it has."""

import re

import psutil

from alpa_explore.runtime.reports import StepReader
from tests.waiting import until


def processes_of(folder):
    """'agent-0', 'rank-1', … -> the process of a run: they write to logs of these names."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        if not any("alpa_explore.runtime.ranks" in word for word in process.info["cmdline"] or ()):
            continue
        try:
            outputs = [file.path for file in process.open_files() if file.fd == 1]
        except psutil.NoSuchProcess:
            continue
        for path in outputs:
            if name := re.fullmatch(re.escape(f"{folder}/") + r"((?:agent|rank)-\d+)\.log", path):
                found[name[1]] = process
    return found


def gone(folder):
    """Wait until no process of a run is left."""
    until(lambda: not processes_of(folder), lambda: f"{processes_of(folder)} have ended")


def stepped(run, count=1):
    """Wait until a run has done so many steps; its error where it has ended before."""
    _see(run, lambda: len(run.progress.steps) >= count, f"{count} steps are done")


def checkpointed(run):
    """Wait until a run has a whole checkpoint; its error where it has ended before."""
    _see(run, lambda: run.progress.checkpoints, "a checkpoint is whole")


def _see(run, state, what):
    until(lambda: state() or run.wait(0), lambda: f"{run}: {what}")
    if not state():
        raise AssertionError(f"ended before {what}: {run.result()}")


def ended(run):
    """Wait for the end of a run, and return its result, or raise its error."""
    until(lambda: run.wait(0), lambda: f"{run} has ended")
    return run.result()


def stepped_in(folder, ranks, count=1, ended=lambda: False):
    """Wait until the run in a folder, which another process watches, has done so many steps; `ended`: it ended."""
    steps = StepReader(folder, ranks)
    until(lambda: len(steps()) >= count or ended(), f"{count} steps are done in {folder}")
    assert len(steps()) >= count, "it ended before"
