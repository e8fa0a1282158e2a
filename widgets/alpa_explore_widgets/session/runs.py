"""Running a plan for real, beside the notebook: whether it can run, a run from start to end, and its stop.

A run belongs to the plan with which it was started. It goes on when the plan on screen becomes another one, and ends
when it is done, stopped, or when the kernel ends: the agent of the ranks then loses its standard input.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from alpa_explore.errors import OptionError
from alpa_explore_widgets.session.background import NewestWins
from alpa_explore_widgets.session.state import Problem, Store, problem_of

if TYPE_CHECKING:
    from pathlib import Path

    from alpa_explore.plans.plan import Plan
    from alpa_explore.runtime.measured import Measured
    from alpa_explore.runtime.reports import StepReport
    from alpa_explore.runtime.run import Run
    from alpa_explore_widgets.session.backend import Planner
    from alpa_explore_widgets.session.sources import Sources

LOOK_SECONDS = 0.25
"""How often a run is looked at: a change is a message to the browser."""
FAILED = "The run failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a plan is to run."""

    target: str = "local"
    """A name of `alpa_explore.runtime.targets.target`."""
    device: str = ""
    """'cpu', 'cuda', or '' for GPUs where there are some."""
    steps: int = 20
    scheduler: str = ""
    """Address of a Dask scheduler, for the target dask."""

    @property
    def asks_others(self) -> bool:
        """Whether a check asks another process, which may take seconds: it is made only when wanted."""
        return self.target == "dask" and bool(self.scheduler)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunCheck:
    """Whether a plan can run."""

    plan: Plan
    settings: RunSettings
    problem: Problem | None = None
    program: dict[str, Any] | None = None
    """Of a dry run: what would be run."""
    busy: bool = False
    """Not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingRun:
    """A run of a plan, as far as it is."""

    plan: Plan
    settings: RunSettings
    own_model: bool
    """Whether it trains a model of the notebook."""
    state: str = "preparing"
    """As `RunProgress.state` of the runtime."""
    stopping: bool = False
    predicted_seconds: float = 0.0
    """Of a step, simulated."""
    steps: tuple[StepReport, ...] = ()
    folder: Path | None = None
    measured: Measured | None = None
    """When it is done."""
    problem: Problem | None = None
    """Why it failed."""

    @property
    def over(self) -> bool:
        """Whether nothing of it goes on."""
        return self.state not in ("preparing", "running")


class Runs:
    """Checks, starts and stops; what comes of it is in the state. Every method returns at once but `wait`."""

    def __init__(self, store: Store, sources: Sources, planner: Planner) -> None:
        self._store, self._sources, self._planner = store, sources, planner
        self._checks: NewestWins[tuple[RunCheck, bool]] = NewestWins(self._check, "alpa-explore run check")
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def check(self, settings: RunSettings, *, dry: bool = False) -> None:
        """Find out whether the plan on screen can run; `dry` lowers it as well, which takes longer."""
        plan = self._store.state.plan
        if plan is not None:
            check = RunCheck(plan=plan, settings=settings, busy=True)
            self._store.change(run_check=check)
            self._checks.submit((check, dry))

    def start(self, settings: RunSettings) -> None:
        """Run the plan on screen; nothing where a run goes on."""
        with self._store.lock:
            plan, last = self._store.state.plan, self._store.state.run
            if plan is None or (last is not None and not last.over):
                return
            self._stop = threading.Event()
            run = TrainingRun(plan=plan, settings=settings, own_model=False)
            self._store.change(run=run)
            work = (run, self._stop)
            self._thread = threading.Thread(target=self._run, args=work, name="alpa-explore run", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the run; its processes are gone within seconds."""
        self._stop.set()
        with self._store.lock:
            run = self._store.state.run
            if run is not None and not run.over:
                self._store.change(run=replace(run, stopping=True))

    def wait(self, timeout: float | None = None) -> bool:
        """Block until no run and no check goes on (scripts and tests). False when the time ran out."""
        if self._thread is not None:
            self._thread.join(timeout)
        return self._checks.wait(timeout) and (self._thread is None or not self._thread.is_alive())

    def _asked(self, plan: Plan, settings: RunSettings) -> dict[str, Any]:
        """The arguments of `ax.launch`."""
        if settings.target == "dask" and not settings.scheduler:
            raise OptionError(
                "A Dask cluster is found by the address of its scheduler",
                found="no address",
                remedy="Type the one that `dask scheduler` prints, tcp://…:8786; its workers start the ranks.",
            )
        return {
            "target": settings.target,
            "steps": settings.steps,
            "device": settings.device or None,
            "scheduler": settings.scheduler or None,
            **self._sources.run_with(plan),
        }

    def _check(self, job: tuple[RunCheck, bool], _cancel: threading.Event) -> None:
        check, dry = job
        found: dict[str, Any] = {}
        try:
            asked = self._asked(check.plan, check.settings)
            if dry:
                found["program"] = self._planner.dry_run(check.plan, **asked)
            else:
                self._planner.check_run(check.plan, **asked)
        except Exception as error:  # a thread has no cell to show it in
            found["problem"] = problem_of(error, FAILED)
        self._store.change(run_check=replace(check, busy=False, **found))

    def _run(self, run: TrainingRun, stop: threading.Event) -> None:
        try:
            asked = self._asked(run.plan, run.settings)
            predicted = run.plan.timeline().makespan_seconds
            handle = self._planner.launch(run.plan, **asked)
            try:
                self._say(own_model="model" in asked, predicted_seconds=predicted, folder=handle.folder)
                self._follow(handle, stop)
            except BaseException:
                handle.stop()  # what nobody watches any more must not go on
                raise
        except Exception as error:
            self._say(state="failed", problem=problem_of(error, FAILED))

    def _follow(self, handle: Run, stop: threading.Event) -> None:
        over = False
        while not over:
            over = handle.wait(LOOK_SECONDS)
            if stop.is_set():
                handle.stop()
            progress = handle.progress
            # Its end is said below, with what was measured; steps stay where it fails.
            self._say(steps=progress.steps, **({} if over else {"state": progress.state}))
        result = handle.result()
        found: dict[str, Any] = {"state": handle.progress.state, "steps": result.steps}
        if found["state"] == "done":
            from alpa_explore.runtime.measured import load_measured

            found["measured"] = load_measured(result.folder)
        self._say(**found)

    def _say(self, **changes: Any) -> None:
        with self._store.lock:
            run = self._store.state.run
            assert run is not None, "a run was started"
            if any(getattr(run, name) != value for name, value in changes.items()):
                self._store.change(run=replace(run, **changes))
