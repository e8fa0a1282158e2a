"""The handle of a run: its progress, its end, and the thread that watches its ranks."""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from alpa_explore.errors import AlpaExploreError, RunError
from alpa_explore.plans.plan import Plan, load_plan
from alpa_explore.runtime import tuning
from alpa_explore.runtime.attempts import Again, Attempt, HostsBack, Retry, ended_for_good, write_attempts
from alpa_explore.runtime.checkpoints.description import FOLDER, STATE
from alpa_explore.runtime.checkpoints.keeper import CheckpointKeeper, Kept
from alpa_explore.runtime.drift import Drift, drift_of
from alpa_explore.runtime.folder import DISK_ERRORS, REQUESTED, WHOLE, attempts_of, release_folder, said, say
from alpa_explore.runtime.measured import write_measured
from alpa_explore.runtime.reports import EventReader, StepReader, StepReport, log_tail
from alpa_explore.runtime.targets.target import Ranks

_ALL_BACK = "all hosts are back"
"""State of an attempt that was ended because all hosts answer with which the run began."""


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
    retries: tuple[Retry, ...] = ()
    """The attempts after which the run went on."""
    failures: tuple[str, ...] = ()
    """Of attempts that may be followed by another one, as soon as they have failed; it goes to `retries` when the next
    one is ready, or to the error of the run."""
    passed_over: tuple[str, ...] = ()
    """Checkpoints that were damaged, so that the run went on from an older one: what is wrong with each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run that has ended without an error."""

    steps: tuple[StepReport, ...]
    folder: Path
    """Of the last attempt: logs, reports and measured times."""
    stopped: bool
    """Whether `stop` ended it."""
    retries: tuple[Retry, ...] = ()
    """The attempts after which the run went on."""


class _Reports:
    """What the ranks of one attempt report, behind what was reported before."""

    def __init__(self, folder: Path, ranks: tuple[int, ...], first_step: int, before: _Reports | None = None) -> None:
        self.folder = folder
        self._steps = StepReader(folder, ranks, first_step)
        self.keeper = CheckpointKeeper(folder, ranks, EventReader(folder, ranks))
        earlier = () if before is None else before.steps()
        self._earlier = tuple(step for step in earlier if step.step < first_step)
        self._kept = () if before is None else before.kept()

    def steps(self) -> tuple[StepReport, ...]:
        return (*self._earlier, *self._steps())

    def kept(self) -> tuple[Kept, ...]:
        return (*self._kept, *self.keeper.kept)


class Run:
    """The handle of a run. Only `wait` and `result` block."""

    def __init__(
        self, folder: Path, ranks: tuple[int, ...], total: int, *, keep_job: bool, first_step: int = 0
    ) -> None:
        self.folder, self.ranks = folder, ranks
        self._total, self._keep_job, self._first_step = total, keep_job, first_step
        self._now = _Reports(folder, ranks, first_step)
        self._retries: tuple[Retry, ...] = ()
        self._passed_over: tuple[str, ...] = ()
        self._failures: tuple[str, ...] = ()
        self._state = "preparing"
        self._error: AlpaExploreError | None = None
        self._plan: Plan | None = None
        self._plan_of: Path | None = None
        """The folder of the attempt that `_plan` is of."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        done = self.progress
        return f"<Run {done.state}, {done.first_step + len(done.steps)} of {done.total} steps, in {self.folder}>"

    @property
    def progress(self) -> RunProgress:
        """The state of the run, and the losses and times of the steps until now."""
        state, now = self._state, self._now
        return RunProgress(
            state=state,
            steps=now.steps(),
            total=self._total,
            first_step=self._first_step,
            checkpoints=now.kept(),
            retries=self._retries,
            failures=self._failures,
            passed_over=self._passed_over,
        )

    @property
    def attempt_folder(self) -> Path:
        """The folder of the present attempt: `folder` itself, unless the run went on after a failure."""
        return self._now.folder

    def stop(self) -> None:
        """Request the end of the run; its ranks are gone within seconds."""
        self._stop.set()

    def checkpoint(self) -> int:
        """Ask for a checkpoint, some seconds from now; the number of steps after which it is taken.

        `progress.checkpoints` has it when it is whole; then the run can be stopped, and resumed under another plan.
        Where all steps are done earlier, it is taken after the last one; where ranks have gone past that step before
        the request reaches them, after a later one.
        """
        return self._request(self._now, tuning.REQUEST_SECONDS)

    def _request(self, now: _Reports, seconds: float) -> int:
        """Ask for a checkpoint after the first step that is expected to begin `seconds` from now."""
        done = now.steps()
        soon = seconds / max(median(s.seconds for s in done[-10:]), 1e-4) if done else 0
        step = min(self._first_step + len(done) + 2 + math.ceil(soon), self._total)
        say(now.folder, REQUESTED, step)
        return step

    def drift(self) -> Drift | None:
        """What runs otherwise than predicted, until now; None before all ranks have reported, after some steps.

        `ax.better_plan(plan, run.drift().cluster)` has the plan that would be best with what was measured.
        """
        folder = self._now.folder  # of the newest attempt, which may have another plan
        if self._plan_of != folder and (folder / "run.json").exists():  # the last file written before the start
            self._plan, self._plan_of = load_plan(folder / "plan.json"), folder
        return None if self._plan is None or self._plan_of != folder else drift_of(folder, self._plan)

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
        return RunResult(
            steps=self._now.steps(), folder=self.attempt_folder, stopped=self._state == "stopped", retries=self._retries
        )

    def begin(self, first_step: int, passed_over: tuple[str, ...]) -> None:
        """Note, before anything is started, the step with which the run begins: which checkpoint is whole is known
        only when all its files were read."""
        self._first_step = first_step
        self._now = _Reports(self.folder, self.ranks, first_step)
        self.note_passed_over(passed_over)

    def note_passed_over(self, passed_over: tuple[str, ...]) -> None:
        """Note checkpoints that cannot be used, each with the reason."""
        self._passed_over += tuple(why for why in passed_over if why not in self._passed_over)

    def watch(self, prepare: Callable[[], object], start: Callable[[], Ranks], again: Again | None = None) -> None:
        """Prepare the run, start its ranks and watch them, in a thread of its own; after a failure, and where hosts
        that were lost are back, go on by `again`.

        AlpaExploreErrors of `again` say why the failure is final.
        """

        def work() -> None:
            attempt = Attempt(
                folder=self.folder, ranks=self.ranks, first_step=self._first_step, prepare=prepare, start=start
            )
            while True:
                state, error = self._outcome(attempt)
                if (error is None and state != _ALL_BACK) or again is None or self._stop.is_set():
                    state = "stopped" if state == _ALL_BACK else state
                    break
                if error is not None and error.may_pass:  # where it can go on is known only after seconds to minutes
                    self._failures = (*self._failures, f"{error.what}: {error.found}.")
                try:
                    attempt = again(error, len(self._retries) + 1)
                    self._next(attempt, error)
                except Exception as why:  # `result` raises the error in the caller's thread
                    final = why if isinstance(why, AlpaExploreError) else _fault(why)
                    state, error = "failed", final if error is None else ended_for_good(error, final)
                    break
            release_folder(self.folder)
            self._error, self._state = error, state

        self._thread = threading.Thread(target=work, name="alpa-explore run", daemon=True)
        self._thread.start()

    def _next(self, attempt: Attempt, error: AlpaExploreError | None) -> None:
        """Note that `attempt` follows the one that failed with `error`; None: all hosts answer again."""
        done = self._now.steps()
        end = done[-1].step + 1 if done else self._first_step
        retry = Retry(
            attempt=len(self._retries) + 1,
            reason="All hosts answer again." if error is None else f"{error.what}: {error.found}.",
            failed=error is not None,
            first_step=attempt.first_step,
            lost_steps=max(end - attempt.first_step, 0),
            where=attempt.where,
            folder=attempt.folder,
        )
        write_attempts(self.folder, (*self._retries, retry))
        self._now = _Reports(attempt.folder, attempt.ranks, attempt.first_step, self._now)
        self._state, self._retries, self.ranks = "preparing", (*self._retries, retry), attempt.ranks

    def _outcome(self, attempt: Attempt) -> tuple[str, AlpaExploreError | None]:
        """How an attempt ended: its state, and its error where it failed."""
        try:
            attempt.prepare()
            return self._watched(attempt)
        except AlpaExploreError as error:
            return "failed", error
        except Exception as error:
            fault = _fault(error)
            fault.__cause__ = error
            return "failed", fault

    def _watched(self, attempt: Attempt) -> tuple[str, AlpaExploreError | None]:
        if self._stop.is_set():
            return "stopped", None
        ranks, now, error = attempt.start(), self._now, None
        lead = tuning.REQUEST_SECONDS
        back = None if attempt.all_back is None else HostsBack(attempt.all_back)
        try:
            self._state = "running"
            while (outcome := ranks.poll()) is None:
                count = len(now.keeper.kept)
                now.keeper.poll()
                if states := [kept.step for kept in now.keeper.kept[count:] if kept.kind == STATE]:
                    say(now.folder, WHOLE, states[-1])
                    if back is not None and back.found.is_set() and states[-1] < self._total:
                        outcome = {"state": _ALL_BACK}
                        break
                asked = said(now.folder, REQUESTED)
                if asked is not None and now.keeper.missed(asked):
                    lead *= 2  # the steps have become faster, or the link is slow
                    self._request(now, lead)
                if self._stop.wait(tuning.RUN_POLL_SECONDS):
                    ranks.stop()
            if outcome["state"] == "done":
                now.keeper.finish(tuning.KEEP_SECONDS)
            now.keeper.poll()
        finally:
            if back is not None:
                back.close()
            ranks.stop()
            now.keeper.close()
        self._remove_older(now)
        if outcome["state"] == "failed":
            tail = "" if outcome["rank"] is None else log_tail(now.folder, outcome["rank"])
            remedy = outcome["remedy"] + f" Logs: {now.folder}."
            error = RunError(outcome["what"], found=outcome["found"], remedy=remedy)
            error.may_pass, error.lost = outcome["may_pass"], outcome.get("lost", ())
            if tail:
                error.add_note(tail)
        if outcome["state"] == "done":
            write_measured(now.folder)
        if not self._keep_job and outcome["state"] != "written":
            shutil.rmtree(now.folder / "job", ignore_errors=True)
        return str(outcome["state"]), error

    def _remove_older(self, now: _Reports) -> None:
        """Remove the checkpoints of earlier attempts, when this one has as many as are kept."""
        if sum(kept.kind == STATE for kept in now.keeper.kept) >= tuning.KEPT_CHECKPOINTS:
            for folder in attempts_of(self.folder):
                if folder != now.folder:
                    shutil.rmtree(folder / FOLDER, ignore_errors=True)


def _fault(error: Exception) -> RunError:
    """An unexpected error as one for users: of the disk, of the user's data or scheduler, or a bug."""
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        return RunError(
            "The folder of the run cannot be written",
            found=str(error),
            remedy="Free some space, or name a folder on another disk (--folder, folder=).",
        )
    lost = isinstance(error, ConnectionError | TimeoutError)
    remedy = (
        "Correct the cause that it names: files of the data, or the connection to the scheduler."
        if isinstance(error, OSError)
        else "This is a bug of alpa_explore: please report it."
    )
    fault = RunError("The run could not be prepared", found=f"{type(error).__name__}: {error}", remedy=remedy)
    fault.may_pass = lost
    return fault
