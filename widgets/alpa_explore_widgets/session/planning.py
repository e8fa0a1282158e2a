"""Planning in the background: runs of the whole planner, and replans, which answer from stage costs that are known.

The whole planner runs for the settings of the controls (its plan is shown), or for a list of settings to be tried
(their plans only enter the history). A replan follows a change of B, δ, schedule or mode at once. Each has a thread of
its own where the newest request wins, and reports in the state.
"""

import threading
import time
from dataclasses import dataclass, replace
from typing import Any

from alpa_explore import units
from alpa_explore.baselines.kinds import KINDS
from alpa_explore.errors import AlpaExploreError, CancelledError, InfeasiblePlanError
from alpa_explore.execution.progress import Progress
from alpa_explore.figures.keys import valid_key
from alpa_explore.numerics.compiled import compilation_reported
from alpa_explore.planner.kernels_meanwhile import kernels_meanwhile
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import NoPlan, reason_of
from alpa_explore.tracing.cancelling import cancelled_by
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.asking.questions import FitSearch
from alpa_explore_widgets.session.backend import Backend
from alpa_explore_widgets.session.background import NewestWins, is_end, paced
from alpa_explore_widgets.session.history import Entry
from alpa_explore_widgets.session.settings import REPLAN_SETTINGS, REPRICED_SETTINGS, Settings
from alpa_explore_widgets.session.sources import Sources
from alpa_explore_widgets.session.state import StateStore, fault_of

PASSES = {
    "composition": "Solving the sharding problems of each logical mesh",
    "fastest choices": "Looking for the fastest choices of every stage",
    "bounds of runs": "Bounding the seconds of every stage from below",
    "sharding": "Solving sharding problems",
    "proof": "Proving that stages are optimal",
    "bounds within memory": "Bounding the seconds of choices that fit in memory from below",
    "proof within memory": "Proving that choices are the fastest that fit in memory",
}
"""Pass of the planner -> what it does, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningJob:
    """Settings to plan for, one after the other."""

    settings: tuple[Settings, ...]
    show: bool = True
    """Show the plan; otherwise only add it to the history."""
    baselines: tuple[str, ...] = ()
    """The baseline to make for each of `settings`, or () to run the planner."""
    degrees: tuple[tuple[str, Any], ...] = ()
    """Arguments of the baselines (`AsBaseline.degrees`); degrees that are not given are tried."""
    names: tuple[str, ...] = ()
    """What each attempt is called that is not shown; by default as its baseline."""
    rest_seconds: float = 0.0
    """The job is dropped if a newer one comes within this time."""


class Planning:
    """The two planning threads of a session, and the rules by which their plans come on screen."""

    def __init__(self, store: StateStore, sources: Sources, backend: Backend) -> None:
        self._store, self._sources, self._backend = store, sources, backend
        self.plans: NewestWins[PlanningJob] = NewestWins(self._run_plans, "alpa-explore plan")
        self.replans: NewestWins[Settings] = NewestWins(self._run_replan, "alpa-explore replan")
        self.fit = FitSearch(store, sources, backend)
        self._report = paced(self._show_progress, always=is_end)
        self._label = ""
        """Which of several settings is planned: the beginning of the activity."""
        self.end_of_move: NewestWins[None] = NewestWins(self._wait_for_end_of_move, "alpa-explore end of move")

    def forget_replans(self) -> None:
        """Cancel the replans: their answers are no longer needed. A replan that has not started never resets
        `replanning`, so this does."""
        self.replans.cancel()
        self._store.change(replanning=False)

    def show(
        self, plan: Plan, plan_settings: Settings, settings: Settings, *, replanned: bool = False, **changes: Any
    ) -> None:
        """Put `plan`, made with `plan_settings`, on screen and into the history; `settings` are those of the controls,
        `changes` further fields of the state. A plan that was `replanned` replaces one of the same move of a slider;
        one that was repriced is an estimate, which the history does not keep."""
        state = self._store.state
        if replanned and plan.basis is not None and plan.basis.cluster != plan.cluster:
            self._store.change(plan=plan, plan_settings=plan_settings, settings=settings, offers=None, **changes)
            return
        entry = Entry(settings=plan_settings, plan=plan)
        moving = replanned and tuning.SAME_MOVE_SECONDS > 0
        if moving:
            self.end_of_move.submit(None)
        self._store.change(
            moving=moving,
            plan=plan,
            plan_settings=plan_settings,
            settings=settings,
            selection=valid_key(plan, state.selection),
            offers=None,
            history=state.history.add(entry, replace_last=replanned and state.moving),
            **changes,
        )

    def _wait_for_end_of_move(self, _job: None, cancel: threading.Event) -> None:
        if cancel.wait(tuning.SAME_MOVE_SECONDS):
            return
        with self._store.lock:
            if not self.end_of_move.has_newer:
                self._store.change(moving=False)

    def _run_plans(self, job: PlanningJob, cancel: threading.Event) -> None:
        change = self._store.change
        if job.rest_seconds:
            change(planning=True, aside=False)
            if cancel.wait(job.rest_seconds):
                change(planning=self.plans.has_newer, cancelling=False, activity="")
                return
        start, no_plans = time.monotonic(), list[NoPlan]()
        names = job.names or job.baselines
        alone = not job.show and len(names) == 1  # the answers to others of its kind stay
        kept = tuple(
            n
            for n in self._store.state.no_plans
            if n.name not in names and (alone or (n.name in KINDS) is not bool(job.baselines))
        )
        # Cleared once: the fault of one of several settings stays on screen while the others are planned.
        change(fault=None)
        self.fit.forget()
        for number, settings in enumerate(job.settings):
            named = f"{names[number]}: " if names else ""
            self._label = "" if job.show else f"{number + 1} of {len(job.settings)}: {named}"
            change(planning=True, aside=not job.show, cancelling=False, progress=None)
            outcome: dict[str, Any]
            try:
                with compilation_reported(self._report_compilation):
                    baseline = job.baselines[number] if job.baselines else None
                    plan = self._make_plan(settings, cancel, baseline, dict(job.degrees))
            except CancelledError:
                elapsed = units.seconds(time.monotonic() - start)
                outcome = {"activity": f"Cancelled after {elapsed}. Solutions are kept: Plan continues from them."}
                cancel.set()
            except AlpaExploreError as error:
                no_plans.append(self._no_plan(job, number, error))
                outcome = {"fault": fault_of(error), "activity": "", **self._without_estimate()} if job.show else {}
                if job.show and _lacks_memory(error):
                    self.fit.start(settings)
            except Exception as error:  # a background thread has no cell in which to show it
                no_plans.append(self._no_plan(job, number, error))
                outcome = {"fault": fault_of(error), "activity": "", **(self._without_estimate() if job.show else {})}
            else:
                outcome = self._accept(plan, settings, time.monotonic() - start, show=job.show)
            last = cancel.is_set() or number == len(job.settings) - 1
            if last and not job.show and not cancel.is_set():
                have = "has" if len(no_plans) == 1 else "have"
                without_plan = f"; {len(no_plans)} of them {have} no plan" if no_plans else ""
                outcome["activity"] = f"Tried {len(job.settings)}{without_plan}: see Why and Search."
            if not job.show:
                outcome["no_plans"] = (*kept, *no_plans)
            ended = {"planning": self.plans.has_newer, "cancelling": False, "progress": None} if last else {}
            change(**{**ended, **outcome})
            if cancel.is_set():
                return

    def _without_estimate(self) -> dict[str, Any]:
        """What to show where an estimate turned out to have no plan: the last plan that worked."""
        history = self._store.state.history
        if not self._store.state.estimated or history.position < 0:
            return {}
        entry = history.entries[history.position]
        return {"plan": entry.plan, "plan_settings": entry.settings}

    def _no_plan(self, job: PlanningJob, number: int, error: Exception) -> NoPlan:
        settings, state = job.settings[number], self._store.state
        memory = state.plan.cluster.device.memory_bytes if state.plan is not None else 0
        names = job.names or job.baselines
        return NoPlan(
            name=names[number] if names else settings.model, reason=reason_of(error, memory), model=settings.model
        )

    def _make_plan(
        self, settings: Settings, cancel: threading.Event, baseline: str | None, degrees: dict[str, Any]
    ) -> Plan:
        """Capture the model and run the planner, or make the baseline of that name."""
        cluster = self._sources.cluster(settings)
        self._say(f"Reading the model: {settings.model}…")
        with cancelled_by(cancel), kernels_meanwhile(cancel):
            graph = self._sources.graph(settings)
        _raise_if_cancelled(cancel)
        if baseline is not None:
            self._say("Planning a baseline…")
            return self._backend.baseline(
                graph,
                cluster,
                baseline,
                num_microbatches=settings.num_microbatches,
                num_layers=None if degrees else settings.num_layers,  # of a layout they are its blocks
                delta=settings.delta,
                cancel=cancel,
                paper=settings.paper,
                rematerialization=settings.rematerialization if settings.rematerialization != "auto" else None,
                **degrees,
            )
        self._say("Clustering the operators into layers…")
        plan = self._backend.plan(graph, cluster, progress=self._report, cancel=cancel, **settings.plan_options)
        _raise_if_cancelled(cancel)
        return plan

    def _accept(self, plan: Plan, settings: Settings, seconds: float, *, show: bool) -> dict[str, Any]:
        """Show a plan, or only add it to the history; returns further changes of the state."""
        with self._store.lock:
            plan_settings = replace(settings, num_layers=plan.options.num_layers)
            if not show:
                entry = Entry(settings=plan_settings, plan=plan)
                return {"history": self._store.state.history.add_without_showing(entry)}
            requested = self._store.state.settings
            if settings.needs_only_replan(requested):
                requested = replace(requested, num_layers=plan_settings.num_layers)
            statistics = plan.statistics
            self.show(
                plan,
                plan_settings,
                requested,
                fault=None,
                planning=False,
                cancelling=False,
                progress=None,
                activity=f"Planned in {units.seconds(seconds)}: {statistics.solves:,} sharding problems, "
                f"{statistics.distinct_solves:,} distinct, {statistics.cached_solves:,} read from the cache.",
            )
            if requested != plan_settings and plan_settings.needs_only_replan(requested):  # B was moved meanwhile
                self.replans.submit(requested)
            return {}

    def _run_replan(self, requested: Settings, cancel: threading.Event) -> None:
        with self._store.lock:
            before, plan_settings = self._store.state.plan, self._store.state.plan_settings
            if before is None or plan_settings is None:
                self._store.change(replanning=False)
                return
            self._store.change(replanning=True)
        fault, plan, lacking = None, None, None
        try:
            pipeline = {
                name: getattr(requested, name)
                for name in ("schedule", "paper")
                if getattr(plan_settings, name) != getattr(requested, name)
            }
            repriced = self._store.state.estimated or not requested.equal_in(REPRICED_SETTINGS, plan_settings)
            wanted = plan_settings.with_those_of(requested, REPRICED_SETTINGS)
            plan = self._backend.replan(
                before,
                graph=lambda: self._sources.graph(plan_settings),
                num_microbatches=requested.num_microbatches,
                delta=requested.delta,
                cancel=cancel,
                progress=self._report_replan,
                **({"cluster": self._sources.cluster(wanted)} if repriced else {}),
                **pipeline,
            )
        except CancelledError:
            plan = None  # a newer value is waiting, or the answer is no longer needed
        except Exception as error:
            fault = fault_of(error)
            if _lacks_memory(error):
                lacking = plan_settings.with_those_of(requested, REPLAN_SETTINGS)
        with self._store.lock:
            state, newer = self._store.state, self.replans.has_newer
            changes: dict[str, Any] = {"replanning": newer}
            if not state.planning and state.progress is not None:
                changes |= {"progress": None, "activity": ""}
            # The plan is shown even when a newer value is waiting: figures follow a slider while it moves.
            still_needed = newer or state.settings.equal_in(REPLAN_SETTINGS, requested)
            if state.plan is not before or not still_needed:
                self._store.change(**changes)  # meanwhile another plan was shown, or the settings were changed back
            elif plan is None:
                self._store.change(**changes, **({} if fault is None else {"fault": fault}))
                if lacking is not None:
                    self.fit.start(lacking)
            else:
                plan_settings = plan_settings.with_those_of(requested, REPLAN_SETTINGS)
                self.show(plan, plan_settings, state.settings, replanned=True, fault=None, **changes)

    def _report_replan(self, progress: Progress) -> None:
        if not self._store.state.planning:
            self._report(progress)

    def _show_progress(self, progress: Progress) -> None:
        if not self._store.state.cancelling:
            what = PASSES.get(progress.pass_name, progress.pass_name)
            self._store.change(progress=progress, activity=self._label + what)

    def _say(self, activity: str) -> None:
        if not self._store.state.cancelling:
            self._store.change(activity=self._label + activity)

    def _report_compilation(self, compiling: bool) -> None:
        self._store.change(compiling=compiling)


def _lacks_memory(error: Exception) -> bool:
    return isinstance(error, InfeasiblePlanError) and error.over_bytes is not None


def _raise_if_cancelled(cancel: threading.Event) -> None:
    if cancel.is_set():
        raise CancelledError("Planning was cancelled", found="Cancel, or a newer request", remedy="Press Plan again.")
