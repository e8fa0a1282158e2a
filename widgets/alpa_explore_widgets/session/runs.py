"""Attached hosts, timed kernels and training runs, in the background: find hosts; time kernels; check whether a plan
can run, start, watch, stop it.

A run belongs to the plan with which it was started. It continues when another plan is shown, and ends when it is done,
stopped, or when the kernel ends: the process that starts the ranks then reads the end of its standard input.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from alpa_explore.cluster import Cluster
from alpa_explore.errors import AlpaExploreError, CancelledError, OptionError
from alpa_explore.plans.plan import Plan
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.backend import Backend
from alpa_explore_widgets.session.background import NewestWins, is_end, paced
from alpa_explore_widgets.session.sources import Sources
from alpa_explore_widgets.session.state import (
    Attachment,
    KernelTimes,
    RunCheck,
    RunSettings,
    StateStore,
    TrainingRun,
    fault_of,
)

if TYPE_CHECKING:
    from alpa_explore.runtime.drift import Drift
    from alpa_explore.runtime.run import Run

_FAILED = "The run failed"


Measured = TypeVar("Measured", Attachment, KernelTimes)


class _Measuring(Generic[Measured]):
    """Measures in the background, and reports in a field of the state; the newest request wins."""

    field: ClassVar[str]
    failed: ClassVar[str]
    """What is said where it could not be measured."""

    def __init__(self, store: StateStore, backend: Backend) -> None:
        self._store, self._backend = store, backend
        self.worker: NewestWins[Measured] = NewestWins(self._run, f"alpa-explore {self.field}")

    def cancel(self) -> None:
        """Stop after what is being measured."""
        self.worker.cancel()

    def _begin(self, measured: Measured) -> None:
        self._store.change(**{self.field: measured})
        self.worker.submit(measured)

    def _run(self, measured: Measured, cancel: threading.Event) -> None:
        def update(**changes: Any) -> None:
            nonlocal measured
            measured = replace(measured, **changes)
            if not self.worker.has_newer:
                self._store.change(**{self.field: measured})

        try:
            self._measure(measured, update, cancel)
        except Exception as error:  # a background thread has no cell in which to show it
            update(fault=fault_of(error, self.failed), busy=False)

    def _measure(self, measured: Measured, update: Callable[..., None], cancel: threading.Event) -> None:
        raise NotImplementedError


class Attaching(_Measuring[Attachment]):
    """Finds the hosts of a Dask scheduler and measures their links."""

    field, failed = "attachment", "The hosts could not be attached"

    def start(self, address: str) -> None:
        """Attach the hosts of the scheduler at `address`."""
        self._begin(Attachment(address=address))

    def _measure(self, measured: Attachment, update: Callable[..., None], cancel: threading.Event) -> None:
        if not measured.address:
            raise OptionError(
                "Hosts are attached by the address of a Dask scheduler",
                found="no address",
                remedy="Type the one that `dask scheduler` prints, tcp://…:8786.",
            )
        report = paced(lambda progress: update(progress=progress), always=is_end)
        try:
            nodes = self._backend.attach(
                measured.address, found=lambda found: update(nodes=found), progress=report, cancel=cancel
            )
        except CancelledError:
            update(busy=False, cancelled=True)
            return
        update(nodes=nodes)
        update(cluster=nodes.cluster(), remarks=nodes.remarks(), busy=False)


class Profiling(_Measuring[KernelTimes]):
    """Times kernels of the plan on screen, on this machine or on the attached hosts. `plan_on` plans on the cluster
    with the kernels that were timed, also where it was cancelled."""

    field, failed = "kernel_times", "The kernels could not be timed"

    def __init__(self, store: StateStore, backend: Backend, plan_on: Callable[[Cluster], None]) -> None:
        super().__init__(store, backend)
        self._plan_on = plan_on

    def start(self, seconds: float) -> None:
        """Time kernels of the plan on screen for about so many seconds."""
        with self._store.lock:
            plan, attachment = self._store.state.plan, self._store.state.attachment
            if plan is not None:
                nodes = None if attachment is None else attachment.nodes
                scheduler = "" if nodes is None else nodes.scheduler
                self._begin(KernelTimes(plan=plan, scheduler=scheduler, seconds=seconds))

    def _measure(self, measured: KernelTimes, update: Callable[..., None], cancel: threading.Event) -> None:
        plan = measured.plan
        where = {"scheduler": measured.scheduler} if measured.scheduler else {}
        found = self._backend.profile(
            plan,
            seconds=measured.seconds,
            store=plan.cluster.device.measured,
            progress=paced(lambda done, kernels, share: update(done=done, kernels=kernels, share=share)),
            cancel=cancel,
            **where,
        )
        with self._store.lock:
            if found.timed and self._store.state.plan is plan:
                self._plan_on(plan.cluster.with_changes(measured=found.store))
            update(found=found, share=found.plan_share, busy=False)


class TrainingRuns:
    """Checks, starts and stops training runs, one at a time, and reports in the state. Only `wait` blocks."""

    def __init__(self, store: StateStore, sources: Sources, backend: Backend) -> None:
        self._store, self._sources, self._backend = store, sources, backend
        self._checks: NewestWins[tuple[RunCheck, bool]] = NewestWins(self._check, "alpa-explore run check")
        self._better: NewestWins[tuple[TrainingRun, Drift]] = NewestWins(self._find_better, "alpa-explore better plan")
        self._stop, self._change = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def check(self, settings: RunSettings, *, dry: bool = False) -> None:
        """Check whether the plan on screen can run; `dry` also lowers it and describes its program, which takes
        longer."""
        plan = self._store.state.plan
        if plan is not None:
            check = RunCheck(plan=plan, settings=settings, busy=True)
            self._store.change(run_check=check)
            self._checks.submit((check, dry))

    def start(self, settings: RunSettings) -> None:
        """Run the plan on screen, unless a run is under way."""
        with self._store.lock:
            plan, previous = self._store.state.plan, self._store.state.run
            if plan is None or (previous is not None and not previous.finished):
                return
            self._stop, self._change = threading.Event(), threading.Event()
            run = TrainingRun(plan=plan, settings=settings, trains_user_module=False)
            self._store.change(run=run)
            arguments = (run, self._stop)
            self._thread = threading.Thread(target=self._run, args=arguments, name="alpa-explore run", daemon=True)
            self._thread.start()

    @property
    def run(self) -> TrainingRun | None:
        """The present run, or the last one."""
        return self._store.state.run

    def change_plan(self) -> None:
        """Take a checkpoint, stop, and go on from it under the better plan, if there is one."""
        with self._store.lock:
            run = self._store.state.run
            if run is not None and run.can_change:
                self._store.change(run=replace(run, changing=True))
                self._change.set()

    def stop(self) -> None:
        """End the run; its processes are gone within seconds."""
        self._stop.set()
        self._better.cancel()
        with self._store.lock:
            run = self._store.state.run
            if run is not None and not run.finished:
                self._store.change(run=replace(run, stopping=True))

    def wait(self, timeout: float | None = None) -> bool:
        """Block until no run and no check is under way (for scripts and tests). Returns False on a timeout."""
        if self._thread is not None:
            self._thread.join(timeout)
        return (
            self._checks.wait(timeout)
            and self._better.wait(timeout)
            and (self._thread is None or not self._thread.is_alive())
        )

    def _launch_arguments(self, plan: Plan, settings: RunSettings) -> dict[str, Any]:
        """The arguments of `ax.launch`."""
        if settings.target == "dask" and not settings.scheduler:
            raise OptionError(
                "A run on a Dask cluster needs the address of its scheduler",
                found="no address",
                remedy="Type the one that `dask scheduler` prints, tcp://…:8786; its workers start the ranks.",
            )
        return {
            "target": settings.target,
            "steps": settings.steps,
            "device": settings.device or None,
            "scheduler": settings.scheduler or None,
            "checkpoint_every": settings.checkpoint_every,
            "retries": settings.retries,
            "resume": settings.resume or None,
            **self._sources.launch_arguments(plan),
        }

    def _check(self, job: tuple[RunCheck, bool], _cancel: threading.Event) -> None:
        check, dry = job
        outcome: dict[str, Any] = {}
        try:
            arguments = self._launch_arguments(check.plan, check.settings)
            if dry:
                outcome["program"] = self._backend.dry_run(check.plan, **arguments)
            else:
                self._backend.check_run(check.plan, **arguments)
        except Exception as error:  # a background thread has no cell in which to show it
            outcome["fault"] = fault_of(error, _FAILED)
        self._store.change(run_check=replace(check, busy=False, **outcome))

    def _run(self, run: TrainingRun, stop: threading.Event) -> None:
        resumed: dict[str, Any] = {}
        try:
            while True:
                arguments = self._launch_arguments(run.plan, run.settings) | resumed
                predicted = run.plan.timeline().makespan_seconds
                handle = self._backend.launch(run.plan, **arguments)
                try:
                    self._update(
                        trains_user_module="model" in arguments, predicted_seconds=predicted, folder=handle.folder
                    )
                    kept = self._watch(handle, stop, run)
                except BaseException:
                    handle.stop()  # processes must not outlive the thread that watches them
                    raise
                if kept is None:
                    return
                resumed = {"resume": handle.folder}
                with self._store.lock:
                    before = self._store.state.run
                    assert before is not None, "it was changed"
                    assert before.better is not None, "it was changed to this"
                    earlier = tuple(step for step in before.steps if step.step < kept)
                    run = replace(run, plan=before.better.best, steps=earlier, retries=before.retries, changed_at=kept)
                    self._store.change(run=run)
        except Exception as error:
            self._update(state="failed", changing=False, fault=fault_of(error, _FAILED))

    def _watch(self, handle: Run, stop: threading.Event, run: TrainingRun) -> int | None:
        """Report the run until its end; `run` has what was before another plan took over.

        The result is the step of its checkpoint where it was stopped to go on under another plan.
        """
        finished, asked, kept, earlier = False, None, None, run.steps
        looked = 0.0
        priced: dict[object, float] = {}
        while not finished:
            finished = handle.wait(tuning.POLL_SECONDS)
            progress = handle.progress
            if stop.is_set():
                handle.stop()
            elif self._change.is_set():
                asked = handle.checkpoint() if asked is None else asked
                whole = [c.step for c in progress.checkpoints if c.kind == "state" and c.step >= asked]
                if whole and kept is None:
                    kept = whole[-1]
                    handle.stop()
            elif time.monotonic() - looked >= tuning.DRIFT_SECONDS and progress.state == "running":
                looked = time.monotonic()
                priced = self._look_for_drift(handle, priced)
            states = [c.step for c in progress.checkpoints if c.kind == "state"]
            # The final state is set below, together with the measured times; the steps stay even if `result` fails.
            self._update(
                steps=(*earlier, *progress.steps),
                first_step=progress.first_step - len(earlier),
                kept_step=states[-1] if states else 0,
                retries=(*run.retries, *progress.retries),
                passed_over=(*run.passed_over, *progress.passed_over),
                **({} if finished else {"state": progress.state}),
            )
        result = handle.result()
        if kept is not None and not stop.is_set():
            self._change.clear()
            return kept
        changes: dict[str, Any] = {"state": handle.progress.state, "steps": (*earlier, *result.steps)}
        if changes["state"] == "done":
            from alpa_explore.runtime.measured import load_measured

            changes["measured"] = load_measured(result.folder)
        self._update(**changes, changing=False)
        return None

    def _look_for_drift(self, handle: Run, priced: dict[object, float]) -> dict[object, float]:
        """Report the drift, and look for a better plan where it is new; the ratios for which one was looked for."""
        drift = handle.drift()
        if drift is None:
            return priced
        self._update(drift=drift)
        ratios = {getattr(d, "nodes", None) or getattr(d, "stage", None): d.ratio for d in drift.found}
        new = ratios.keys() != priced.keys() or any(
            max(ratio / priced[key], priced[key] / ratio) > tuning.DRIFT_CHANGE for key, ratio in ratios.items()
        )
        run = self._store.state.run
        if not (new and ratios) or run is None:
            return priced
        self._better.submit((run, drift))
        return ratios

    def _find_better(self, job: tuple[TrainingRun, Drift], cancel: threading.Event) -> None:
        run, drift = job
        try:
            better = self._backend.better_plan(run.plan, drift, cancel=cancel)
        except AlpaExploreError:  # cancelled, or the model cannot be captured again: the drift is said without it
            return
        with self._store.lock:
            now = self._store.state.run
            if now is not None and now.plan is run.plan and not now.changing:
                self._update(better=better)

    def _update(self, **changes: Any) -> None:
        """Replace fields of the run in the state."""
        with self._store.lock:
            run = self._store.state.run
            assert run is not None, "no run was started"
            if any(getattr(run, name) != value for name, value in changes.items()):
                self._store.change(run=replace(run, **changes))
