"""A small plan, and the processes that a run leaves behind."""

from __future__ import annotations

import time

import psutil

import alpa_explore as ax


def small_plan(devices=2, num_microbatches=2):
    """An MLP on a pipeline of one CPU a stage."""
    return ax.baseline(
        "mlp-tiny",
        f"1x{devices}:cpu",
        "inter-only",
        num_microbatches=num_microbatches,
        num_layers=devices,
        delta=1.0,
        precision="float32",
    )


def two_machines():
    """The same plan as `small_plan()`, on two machines of one CPU."""
    return ax.baseline(
        "mlp-tiny", "2x1:cpu", "inter-only", num_microbatches=2, num_layers=2, delta=1.0, precision="float32"
    )


def processes_of(folder):
    """All processes that have the folder of a run on their command line: the agent, and its ranks, which are forks."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if "alpa_explore.runtime.ranks.agent" in words and str(folder) in words:
            found.append(process)
    return found


def gone_within(folder, seconds):
    """Whether all of them are gone in time."""
    end = time.monotonic() + seconds
    while processes_of(folder) and time.monotonic() < end:
        time.sleep(0.05)
    return not processes_of(folder)
