"""The reports of running ranks: files in the folder of the run, and their readers.

A line of `rank-N.jsonl` is a JSON object with `event`: "step" (step, loss or null, seconds), "checkpoint" (name, kind,
step, save, seconds, requested, and files: name -> [bytes, sha256] of what the rank has written), "error" (what, found,
remedy) or "done" (peak_bytes). `rank-N.alive`, the heartbeat, is rewritten about twice a second.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from alpa_explore.runtime import tuning
from alpa_explore.runtime.folder import NewLines, replace_text


class Reporter:
    """Writes the reports of one rank."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._path, self._alive = folder / f"rank-{rank}.jsonl", folder / f"rank-{rank}.alive"
        self._path.touch()

    def report(self, event: str, **figures: Any) -> None:
        """Append an event; other processes see the whole line or nothing."""
        line = json.dumps({"event": event, **figures}, ensure_ascii=False) + "\n"
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(line)

    def start_heartbeat(self, heartbeat: Callable[[], Heartbeat], parent: int | None) -> None:
        """Write the heartbeat from now on; end this process at once when its parent process is gone."""

        def run() -> None:
            pause = threading.Event()
            while True:
                now = heartbeat()
                text = json.dumps({"instructions": now.instructions, "doing": now.doing, "waits_for": now.waits_for})
                replace_text(self._alive, text)
                if parent is not None and os.getppid() != parent:
                    os._exit(1)
                pause.wait(tuning.HEARTBEAT_SECONDS)

        threading.Thread(target=run, name="heartbeat", daemon=True).start()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What a rank is doing."""

    instructions: int
    """The number of instructions finished since the start."""
    doing: str
    waits_for: str
    """What the rank waits for; empty while it computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One iteration of training."""

    step: int
    loss: float
    """The mean over the microbatches."""
    seconds: float
    """The time of the slowest rank."""


def read_heartbeat(folder: Path, rank: int) -> Heartbeat | None:
    """The last heartbeat of a rank; None before the first one."""
    path = folder / f"rank-{rank}.alive"
    return Heartbeat(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def events(folder: Path, rank: int) -> Iterator[dict[str, Any]]:
    """The events that a rank has reported until now."""
    return (json.loads(line) for line in NewLines(folder / f"rank-{rank}.jsonl")())


class EventReader:
    """Reads the events of all ranks; each call reads only new lines."""

    def __init__(self, folder: Path, ranks: tuple[int, ...]) -> None:
        self._lines = {rank: NewLines(folder / f"rank-{rank}.jsonl") for rank in ranks}

    def __call__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(rank, event) of the new events, those of a rank in order."""
        for rank, new in self._lines.items():
            for line in new():
                yield rank, json.loads(line)


class StepReader:
    """Reads the iterations that all ranks have finished; each call reads only new lines."""

    def __init__(self, folder: Path, ranks: tuple[int, ...], first_step: int = 0) -> None:
        """`first_step` is the first step of the run: not 0 for one that goes on from a checkpoint."""
        self._events, self._ranks, self._first = EventReader(folder, ranks), len(ranks), first_step
        self._half: dict[int, list[dict[str, Any]]] = {}
        self._done: list[StepReport] = []
        self._lock = threading.Lock()

    def __call__(self) -> tuple[StepReport, ...]:
        """All finished iterations, in order."""
        with self._lock:
            for _, event in self._events():
                if event["event"] == "step":
                    self._half.setdefault(event["step"], []).append(event)
            while len(of_step := self._half.get(step := self._first + len(self._done), ())) == self._ranks:
                losses = [e["loss"] for e in of_step if e["loss"] is not None]
                # Under DualPipe either end has the losses of half of the microbatches; else all ranks have the same.
                loss = fmean(losses) if losses else math.nan
                seconds = max(e["seconds"] for e in of_step)
                del self._half[step]
                self._done.append(StepReport(step=step, loss=loss, seconds=seconds))
            return tuple(self._done)


def log_tail(folder: Path, rank: int) -> str:
    """The last lines that a rank printed."""
    path = folder / f"rank-{rank}.log"
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return "\n".join(text.splitlines()[-12:])
