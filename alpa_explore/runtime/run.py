"""The handle of a run: its progress, its end, and the thread that watches its ranks."""

from __future__ import annotations

import errno
import math
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from alpa_explore.errors import AlpaExploreError, RunError
from alpa_explore.runtime import tuning
from alpa_explore.runtime.checkpoints.keeper import CheckpointKeeper, Kept
from alpa_explore.runtime.checkpoints.request import request_checkpoint
from alpa_explore.runtime.measured import write_measured
from alpa_explore.runtime.reports import EventReader, StepReader, StepReport, log_tail
from alpa_explore.runtime.targets.target import Ranks

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG)
"""Errors of a full disk, or of one that cannot be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The progress of a run."""

    state: str
    """'preparing', 'running', 'done', 'failed', 'stopped', or 'written' where a script is to be run."""
    steps: tuple[StepReport, ...]
    """The finished steps; of a resumed run those since its checkpoint."""
    total: int
    """The number of steps of the whole training."""
    first_step: int = 0
    """The step with which the run began; not 0 for a resumed one."""
    checkpoints: tuple[Kept, ...] = ()
    """The checkpoints that became whole, oldest first; the last two exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run that has ended without an error."""

    steps: tuple[StepReport, ...]
    folder: Path
    stopped: bool
    """Whether `stop` ended it."""


class Run:
    """The handle of a run. Only `wait` and `result` block."""

    def __init__(
        self, folder: Path, ranks: tuple[int, ...], total: int, *, keep_job: bool, first_step: int = 0
    ) -> None:
        self.folder, self.ranks = folder, ranks
        self._total, self._keep_job, self._first_step = total, keep_job, first_step
        self._steps = StepReader(folder, ranks, first_step)
        self._keeper = CheckpointKeeper(folder, ranks, EventReader(folder, ranks))
        self._state = "preparing"
        self._error: AlpaExploreError | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        done = self.progress
        return f"<Run {done.state}, {done.first_step + len(done.steps)} of {done.total} steps, in {self.folder}>"

    @property
    def progress(self) -> RunProgress:
        """The state of the run, and the losses and times of the steps until now."""
        state = self._state
        return RunProgress(
            state=state,
            steps=self._steps(),
            total=self._total,
            first_step=self._first_step,
            checkpoints=self._keeper.kept,
        )

    def stop(self) -> None:
        """Request the end of the run; its ranks are gone within seconds."""
        self._stop.set()

    def checkpoint(self) -> int:
        """Ask for a checkpoint, some seconds from now; the number of steps after which it is taken.

        `progress.checkpoints` has it when it is whole; then the run can be stopped, and resumed under another plan.
        Where all steps are done earlier, it is taken after the last one.
        """
        done = self._steps()
        soon = tuning.REQUEST_SECONDS / max(median(s.seconds for s in done[-10:]), 1e-4) if done else 0
        step = min(self._first_step + len(done) + 2 + math.ceil(soon), self._total)
        request_checkpoint(self.folder, step)
        return step

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, whatever its outcome; False when `timeout` seconds pass first."""
        assert self._thread is not None, "a run is watched from its start"
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def result(self, timeout: float | None = None) -> RunResult:
        """Wait for the end, and return the steps.

        RunError, with the end of the log of the failed rank as its note, where the run failed; the error that prevented
        its preparation; TimeoutError when `timeout` seconds pass first.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"the run in {self.folder} goes on")
        if self._error is not None:
            raise self._error
        return RunResult(steps=self._steps(), folder=self.folder, stopped=self._state == "stopped")

    def watch(self, prepare: Callable[[], object], start: Callable[[], Ranks]) -> None:
        """Prepare the run, start its ranks and watch them, in a thread of its own."""

        def work() -> None:
            try:
                prepare()
                self._state = self._watched(start)
            except AlpaExploreError as error:
                self._error, self._state = error, "failed"
            except Exception as error:  # `result` raises the error in the caller's thread
                self._error, self._state = _fault(error), "failed"
                self._error.__cause__ = error

        self._thread = threading.Thread(target=work, name="alpa-explore run", daemon=True)
        self._thread.start()

    def _watched(self, start: Callable[[], Ranks]) -> str:
        if self._stop.is_set():
            return "stopped"
        ranks = start()
        try:
            self._state = "running"
            while (outcome := ranks.poll()) is None:
                self._keeper.poll()
                if self._stop.wait(tuning.RUN_POLL_SECONDS):
                    ranks.stop()
            if outcome["state"] == "done":
                self._keeper.finish(tuning.KEEP_SECONDS)
            self._keeper.poll()
        finally:
            ranks.stop()
            self._keeper.close()
        if outcome["state"] == "failed":
            tail = "" if outcome["rank"] is None else log_tail(self.folder, outcome["rank"])
            remedy = outcome["remedy"] + f" Logs: {self.folder}."
            self._error = RunError(outcome["what"], found=outcome["found"], remedy=remedy)
            if tail:
                self._error.add_note(tail)
        if outcome["state"] == "done":
            write_measured(self.folder)
        if not self._keep_job and outcome["state"] != "written":
            shutil.rmtree(self.folder / "job", ignore_errors=True)
        return str(outcome["state"])


def _fault(error: Exception) -> RunError:
    """An unexpected error as one for users: of the disk, of the user's data or scheduler, or a bug."""
    if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
        return RunError(
            "The folder of the run cannot be written",
            found=str(error),
            remedy="Free some space, or name a folder on another disk (--folder, folder=).",
        )
    remedy = (
        "Correct the cause that it names: files of the data, or the connection to the scheduler."
        if isinstance(error, OSError)
        else "This is a bug of alpa_explore: please report it."
    )
    return RunError("The run could not be prepared", found=f"{type(error).__name__}: {error}", remedy=remedy)
