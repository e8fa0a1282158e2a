"""The agent of one machine: it starts the ranks, watches them, and ends all of them when one fails.

    python -m alpa_explore.runtime.ranks.agent FOLDER FIRST COUNT INIT_METHOD

The agent is a process of its own, which imports torch once and forks a process for each rank. A busy notebook does not
keep it from watching. When the program that started it ends or stops the run, the agent's standard input closes and
it ends its ranks. A run fails when a rank exits with an error, is killed or writes no heartbeat for
`tuning.FROZEN_SECONDS`, or when no rank finishes an instruction for the run's `stall_seconds`. The agent writes how its
ranks ended to `agent-FIRST.json`.
"""

import ctypes
import io
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

import torch

from alpa_explore.programs.execution.optimizer_step import PieceOptimizer
from alpa_explore.runtime import tuning
from alpa_explore.runtime.folder import full_disk, replace_text
from alpa_explore.runtime.ranks.worker import run_rank
from alpa_explore.runtime.reports import Heartbeat, events, read_heartbeat

STOPPED, FAILED, DONE = "stopped", "failed", "done"


class Agent:
    """The ranks `first` to `first + count - 1` of the run."""

    def __init__(self, folder: Path, first: int, count: int, init_method: str) -> None:
        self.folder, self.first, self.init_method = folder, first, init_method
        self.numbers = list(range(first, first + count))
        self.stall_seconds = json.loads((folder / "run.json").read_text(encoding="utf-8"))["options"]["stall_seconds"]
        self.pids: dict[int, int] = {}
        self.codes: dict[int, int] = {}
        """Rank that has ended -> its exit code; −9 for one killed by signal 9."""
        self.beats: dict[int, tuple[float, int]] = {}
        """Rank -> (when this agent saw its last heartbeat, modification time of that heartbeat's file)."""
        self.progress = (-1, 0.0)
        """(instructions finished by all ranks, since when the number has not changed)."""

    def run(self) -> dict[str, Any]:
        """Run the ranks from start to end; how they ended."""
        if _asked_to_stop(0):
            return {"state": STOPPED}
        for rank in self.numbers:
            self.pids[rank] = self._fork(rank)
        try:
            while True:
                self._reap()
                if len(self.codes) == len(self.numbers) and not any(self.codes.values()):
                    return {"state": DONE}
                if any(self.codes.values()):
                    time.sleep(tuning.SETTLE_SECONDS)
                    self._reap()
                    return {"state": FAILED, **(self._full_disk() or self._why())}
                if (stuck := self._full_disk() or self.stuck(time.monotonic())) is not None:
                    return {"state": FAILED, **stuck}
                if _asked_to_stop(tuning.AGENT_POLL_SECONDS):
                    return {"state": STOPPED}
        finally:
            self._end()

    def _fork(self, rank: int) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        self._be(rank, parent)

    def _be(self, rank: int, parent: int) -> NoReturn:
        """Run a rank in the new process."""
        code = 1
        try:
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(
                    1, signal.SIGKILL
                )  # PR_SET_PDEATHSIG: the rank ends with the agent, even if it hangs
            log = os.open(self.folder / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            assert isinstance(sys.stdout, io.TextIOWrapper), "no capture in a forked rank"
            sys.stdout.reconfigure(line_buffering=True)  # a killed rank loses no output
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            local = rank - self.first
            code = run_rank(self.folder, rank, init_method=self.init_method, local_rank=local, parent=parent)
        except BaseException:  # the process must end here in any case
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        for rank, pid in self.pids.items():
            if rank not in self.codes:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    self.codes[rank] = os.waitstatus_to_exitcode(status)

    def _why(self) -> dict[str, Any]:
        """The failure that caused the others: a killed rank, else the first rank that reports an error of its own."""
        failed = [rank for rank in self.numbers if self.codes.get(rank)]
        for rank in failed:
            if (code := self.codes[rank]) < 0:
                name = signal.Signals(-code).name
                more = " (the system does that when memory runs out)" if name == "SIGKILL" else ""
                return _failure(
                    rank,
                    f"Rank {rank} was killed",
                    f"signal {-code}, {name}{more}, at {self._doing(rank)}",
                    "Look at its log, at the memory of the machine, and whether somebody ended it.",
                )
        reported = [(rank, e) for rank in failed for e in events(self.folder, rank) if e["event"] == "error"]
        for rank, e in sorted(reported, key=lambda entry: bool(entry[1]["follows"])):
            return _failure(rank, e["what"], e["found"], e["remedy"], may_pass=e["may_pass"])
        rank = failed[0]
        return _failure(
            rank,
            f"Rank {rank} ended before its work was done",
            f"exit code {self.codes[rank]} at {self._doing(rank)}",
            "Look at its log.",
        )

    def stuck(self, now: float) -> dict[str, Any] | None:
        """The failure, where at `now` (seconds) a rank has no heartbeat or no rank makes progress; else None."""
        total = 0
        alive_of: dict[int, Heartbeat | None] = {rank: read_heartbeat(self.folder, rank) for rank in self.numbers}
        for rank in self.numbers:
            path = self.folder / f"rank-{rank}.alive"
            written = path.stat().st_mtime_ns if path.exists() else 0
            if written != self.beats.get(rank, (0.0, -1))[1]:
                self.beats[rank] = now, written
            if rank not in self.codes and now - self.beats[rank][0] > tuning.FROZEN_SECONDS:
                return _failure(
                    rank,
                    f"Rank {rank} hangs",
                    f"no sign of life for {tuning.FROZEN_SECONDS:.0f} s at {self._doing(rank)}",
                    "Its process was stopped, or the machine swaps: look at its memory.",
                )
            seen = alive_of[rank]
            total += seen.instructions if seen else 0
        if total != self.progress[0]:
            self.progress = total, now
        if now - self.progress[1] < self.stall_seconds:
            return None
        working = [rank for rank, seen in alive_of.items() if rank not in self.codes and seen and not seen.waits_for]
        rank = (working or self.numbers)[0]
        waiting = [f"rank {r} waits for {s.waits_for}" for r, s in alive_of.items() if s and s.waits_for]
        return _failure(
            rank,
            "The ranks make no progress",
            "; ".join([f"none for {self.stall_seconds:.0f} s, rank {rank} is at {self._doing(rank)}", *waiting]),
            "Where an instruction may take so long, give a longer --stall-seconds; else look at the logs.",
        )

    def _full_disk(self) -> dict[str, Any] | None:
        """The failure, where the disk is full: ranks cannot say so then, and end or seem to hang."""
        told = full_disk(self.folder, f"on {socket.gethostname()}")
        return None if told is None else {"rank": None, "may_pass": False, **told}

    def _doing(self, rank: int) -> str:
        seen = read_heartbeat(self.folder, rank)
        return "its start" if seen is None else seen.doing

    def _end(self) -> None:
        """Kill the ranks that still run; a rank has nothing to save."""
        for rank, pid in self.pids.items():
            if rank not in self.codes:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _failure(rank: int, what: str, found: str, remedy: str, *, may_pass: bool = True) -> dict[str, Any]:
    return {"rank": rank, "what": what, "found": found, "remedy": remedy, "may_pass": may_pass}


def _asked_to_stop(seconds: float) -> bool:
    """Wait so many seconds for standard input to be closed or written to; whether it was."""
    ready, _, _ = select.select([0], [], [], seconds)
    return bool(ready)


def _stop(_signal: int, _frame: object) -> NoReturn:
    raise SystemExit(0)  # through `finally`, which ends the ranks


def import_all() -> None:
    """Import what ranks will need, once for all of them. The first optimizer imports a large part of torch."""
    PieceOptimizer("optimizer.adam", torch.zeros(1), 1e-3)


def main(arguments: list[str]) -> int:
    """Run the agent; exit code 0 where the ranks are done."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that started this one
    import_all()
    folder = Path(arguments[0])
    outcome: dict[str, Any] = {"state": STOPPED}
    try:
        outcome = Agent(folder, int(arguments[1]), int(arguments[2]), arguments[3]).run()
    finally:
        replace_text(folder / f"agent-{arguments[1]}.json", json.dumps(outcome, ensure_ascii=False))
    return 0 if outcome["state"] == DONE else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
