"""Limits of time in these tests are of processor time: other programs that share the cores change nothing."""

import time

import pytest


@pytest.fixture(autouse=True)
def _processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's clock, which gives its searches their deadlines, is that of the processor. They compute all the
    time, so a search that keeps its limit on this clock keeps it on an idle machine's."""
    monkeypatch.setattr(time, "perf_counter", time.process_time)
