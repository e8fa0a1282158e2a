"""The running times of a rank, in `rank-N.times.json`: what its tasks, its messages and its collectives took lately.

The file is rewritten while the rank trains, at most once in `tuning.TIMES_SECONDS`; `runtime.drift` reads those of all
ranks. Task times are medians of the last steps. Messages and collectives are those of the last step of every
`tuning.TIMED_STEPS`, the same ones on all ranks, so that both ends of a message can be joined. On a GPU these only
queue work and are left out.
"""

import json
import time
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from alpa_explore.runtime import tuning
from alpa_explore.runtime.folder import replace_text

FILE = "rank-{}.times.json"


class Traffic:
    """Records the messages and collectives of a rank in one step; nothing unless `recording`."""

    def __init__(self) -> None:
        self.origin = 0.0
        """What `time.perf_counter` shows here when the first rank's shows 0."""
        self.recording = False
        self._sent: list[tuple[int, str, float]] = []
        self._received: list[tuple[int, str, int, float, float]] = []
        self._collectives: dict[tuple[tuple[int, ...], str, int], list[float]] = {}

    def begin(self, recording: bool) -> None:
        """Start a step."""
        self.recording = recording
        self._sent, self._received, self._collectives = [], [], {}

    def sent(self, to: int, message: tuple[int, int, bool]) -> None:
        """A message is offered to its receiver now."""
        if self.recording:
            self._sent.append((to, _name(message), self._now()))

    def received(self, source: int, message: tuple[int, int, bool], size: int, asked: float) -> None:
        """A message of `size` bytes is here; it was asked for at `asked`, by `time.perf_counter`."""
        if self.recording:
            self._received.append((source, _name(message), size, asked - self.origin, self._now()))

    def exchanged(self, ranks: Iterable[int], kind: str, size: int, began: float) -> None:
        """A collective is over; `size` are the bytes of its larger side on this rank."""
        if self.recording:
            entry = self._collectives.setdefault((tuple(ranks), kind, size), [0, 0.0])
            entry[0] += 1
            entry[1] += time.perf_counter() - began

    def figures(self) -> dict[str, Any]:
        """What was recorded, as JSON has it."""
        collectives = [[*key, int(count), seconds] for key, (count, seconds) in self._collectives.items()]
        return {"sent": self._sent, "received": self._received, "collectives": collectives}

    def _now(self) -> float:
        return time.perf_counter() - self.origin


class RunningTimes:
    """Writes the file of a rank."""

    def __init__(self, folder: Path, rank: int, traffic: Traffic, first_step: int) -> None:
        self._path, self._traffic, self._first = folder / FILE.format(rank), traffic, first_step
        self._steps: deque[dict[str, Any]] = deque(maxlen=tuning.TIMED_SAMPLES)
        self._written = 0.0

    def begin(self, step: int) -> None:
        """Start a step."""
        self._traffic.begin(self._timed(step))

    def end(self, step: int, tasks: Mapping[Any, Any], *, last: bool) -> None:
        """End a step. `tasks`: task -> its seconds, collective_seconds and receive_seconds of the last steps."""
        if self._timed(step):
            self._steps.append({"step": step, **self._traffic.figures()})
        now = time.monotonic()
        if last or (self._timed(step) and now - self._written >= tuning.TIMES_SECONDS):
            self._written = now
            kinds: dict[str, list[float]] = {}
            for task, took in tasks.items():
                kind = str(task).rstrip("0123456789")
                seconds, collective, receive = (
                    _recent(of) for of in (took.seconds, took.collective_seconds, took.receive_seconds)
                )
                sums = kinds.setdefault(kind, [0.0, 0.0, 0.0])
                sums[0] += max(seconds - collective - receive, 0.0)
                sums[1] += collective
                sums[2] += receive
            text = json.dumps({"step": step, "tasks": kinds, "samples": list(self._steps)})
            replace_text(self._path, text)

    def _timed(self, step: int) -> bool:
        return (step - self._first) % tuning.TIMED_STEPS == tuning.TIMED_STEPS - 1


def _recent(values: deque[float]) -> float:
    """The median of the last steps, without the very first one where there are others."""
    settled = list(values)
    if len(settled) > 1 and len(settled) < tuning.MEASURED_STEPS:
        settled = settled[1:]
    return median(settled[-tuning.RECENT_STEPS :])


def _name(message: tuple[int, int, bool]) -> str:
    number, microbatch, update = message
    return f"{number}.{microbatch}{'u' if update else ''}"
