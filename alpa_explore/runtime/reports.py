"""What running ranks report and print: files in the folder of the run, and their readers.

A line of `rank-N.jsonl` is a JSON object with `event`: "step" (step, loss or null, seconds), "checkpoint" (name, kind,
step, save, seconds, requested, and files: name -> [bytes, sha256] of what the rank has written), "error" (what, found,
remedy) or "done" (peak_bytes). `rank-N.alive`, the heartbeat, is rewritten about twice a second.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from alpa_explore.errors import OptionError
from alpa_explore.runtime import tuning
from alpa_explore.runtime.folder import NewLines, attempts_of, read_facts, read_hosts, replace_text


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line that a rank or an agent printed."""

    source: str
    """'rank 2 node1 (10.0.0.2)', 'agent of rank 2 …'; without a host where all are on this machine."""
    text: str


class LogReader:
    """Reads the logs in the folder of a run; each call reads only new lines."""

    def __init__(self, folder: Path, ranks: Sequence[int] | None = None) -> None:
        """Of some ranks, or of all ranks and their agents, in the run's last attempt. OptionError for a folder that is
        none, and a rank that it does not have."""
        folder = attempts_of(folder)[-1]
        try:
            self._all: list[int] = read_facts(folder)["ranks"]
        except (OSError, ValueError) as error:
            raise _no_run(folder, error) from error
        if absent := sorted(set(ranks or ()) - set(self._all)):
            raise OptionError(
                "The run has no such rank",
                found=f"{absent[0]}",
                remedy=f"Choose from {self._all[0]} to {self._all[-1]}.",
            )
        self.folder, self.ranks = folder, tuple(ranks or self._all)
        self._agents = not ranks
        self._lines: dict[str, NewLines] = {}

    def __call__(self, *, last: bool = False) -> Iterator[LogLine]:
        """The new lines, rank by rank; `last`: also one without an end."""
        try:
            hosts = read_hosts(self.folder)
        except (OSError, ValueError) as error:
            raise _no_run(self.folder, error) from error
        for rank in self.ranks:
            width = len(str(self._all[-1]))
            host = hosts.get(str(rank), "")
            if self._agents:
                yield from self._new(f"agent-{rank}.log", f"agent {host}".strip(), last)
            yield from self._new(f"rank-{rank}.log", f"rank {rank:>{width}} {host}".strip(), last)

    def over(self) -> bool:
        """Whether all ranks have said that they are done or failed, or their agents have ended."""
        ended = {e["event"] for rank in self.ranks for e in events(self.folder, rank)}
        if "error" in ended or (self.folder / "measured.json").exists():
            return True
        agents = list(self.folder.glob("agent-*.log"))
        return bool(agents) and all(path.with_suffix(".json").exists() for path in agents)

    def _new(self, name: str, source: str, last: bool) -> Iterator[LogLine]:
        for line in self._lines.setdefault(name, NewLines(self.folder / name))(last=last):
            yield LogLine(source=source, text=line.decode("utf-8", errors="replace"))


def _no_run(folder: Path, why: object) -> OptionError:
    return OptionError(
        "This is not the folder of a run",
        found=f"{folder}: {why}",
        remedy="Name the folder that `alpa-explore launch` printed.",
    )
