"""What runs on a GPU only, on a made-up device: its clock between events, after a wait that lets the host get ahead."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from alpa_explore.calibration import tuning
from alpa_explore.calibration.measuring.clock import Clock, clocks
from alpa_explore.runtime.ranks.transport import Stopwatch


class Device:
    """A device that runs what is queued, one after the other; its time is in seconds."""

    def __init__(self) -> None:
        self.time = 0.0
        self.waits: list[int] = []
        self.synchronised = 0

    def run(self, seconds: float) -> None:
        self.time += seconds

    def sleep(self, cycles: int) -> None:
        self.waits.append(cycles)
        self.time += cycles / 2e9

    def synchronize(self) -> None:
        self.synchronised += 1

    def event(self, **options: Any) -> Event:
        assert options == {"enable_timing": True}
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self.device, self.at = device, float("nan")

    def record(self) -> None:
        self.at = self.device.time

    def synchronize(self) -> None:
        self.device.synchronize()

    def elapsed_time(self, other: Event) -> float:
        """In milliseconds."""
        return 1e3 * (other.at - self.at)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    monkeypatch.setattr(torch.cuda, "Event", made.event)
    monkeypatch.setattr(torch.cuda, "_sleep", made.sleep)
    monkeypatch.setattr(torch.cuda, "synchronize", made.synchronize)
    return made


@pytest.mark.parametrize("seconds", [2e-6, 3e-4, 0.05])
def test_a_kernel_takes_what_the_device_says(device: Device, seconds: float) -> None:
    clock = Clock("cuda", 1, 0.01)
    assert clock(lambda: device.run(seconds)) == pytest.approx(seconds, rel=1e-3)
    assert device.synchronised >= tuning.REPEATS
    assert 0 < min(device.waits) <= max(device.waits) <= tuning.MOST_WAIT_CYCLES


def test_no_run_queues_more_than_a_gpu_takes(device: Device) -> None:
    calls = 0

    def kernel() -> None:
        nonlocal calls
        calls += 1
        device.run(1e-7)

    Clock("cuda", 1, 10.0)(kernel)
    runs = len(device.waits)
    assert calls <= runs * tuning.MOST_QUEUED + tuning.WARM_UPS


def test_the_runtime_counts_the_seconds_of_the_device_and_not_of_the_host(device: Device) -> None:
    watch = Stopwatch(torch.device("cuda"))
    for seconds in (0.5, 0.25):
        with watch:
            device.run(seconds)
        device.run(1.0)  # other kernels
    assert watch.seconds() == pytest.approx(0.75)
    assert watch.seconds() == pytest.approx(0.75), "asking does not count twice"


def test_on_a_cpu_the_runtime_counts_wall_clock_time() -> None:
    watch = Stopwatch(torch.device("cpu"))
    with watch:
        sum(range(10**6))
    assert 0 < watch.seconds() < 10


def test_clocks_are_asked_of_a_gpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clocks("cpu") == ""
    monkeypatch.setenv("PATH", "")
    assert clocks("cuda") == "", "no driver to ask"
