"""What happens when something is asked for: planning in the background, other values of B from the costs at hand."""

from __future__ import annotations

import threading
import time
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from alpa_explore import units
from alpa_explore.errors import AlpaExploreError, CancelledError
from alpa_explore_widgets.background import NewestWins
from alpa_explore_widgets.planner import Planner
from alpa_explore_widgets.sources import Sources
from alpa_explore_widgets.state import Problem, Settings, State, Store

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan
    from alpa_explore.profiling.progress import Progress

REPORT_SECONDS = 0.1
"""Progress is shown at most this often: a report is a message to the browser."""


class Session:
    """Holds the state of one explorer and answers to its controls; every method returns at once."""

    def __init__(self, settings: Settings, sources: Sources, planner: Planner) -> None:
        self.store = Store(State(settings=settings))
        self.sources = sources
        self._planner = planner
        self._plans: NewestWins[Settings] = NewestWins(self._run_plan, "alpa-explore plan")
        self._replans: NewestWins[int] = NewestWins(self._run_replan, "alpa-explore replan")
        self._last_report = 0.0

    def set(self, **changes: Any) -> None:
        """Change settings. Another B is answered at once from the last plan's costs, anything else waits for `plan`."""
        with self.store.lock:
            old = self.store.state.settings
            if "model" in changes and changes["model"] != old.model:
                changes = self._fresh_model(changes["model"]) | changes
            settings = replace(old, **changes)
            self.store.change(settings=settings)
            if settings.num_microbatches != old.num_microbatches and self.store.state.plan is not None:
                self._replans.submit(settings.num_microbatches)

    def start_from(self, plan: Plan) -> None:
        """Show a plan that was made elsewhere."""
        self.store.change(plan=plan, planned=self.store.state.settings, activity="As given; Plan makes it again.")

    def plan(self) -> None:
        """Run the whole planner for the present settings; a run under way is given up."""
        self._plans.submit(self.store.state.settings)

    def cancel(self) -> None:
        """Stop planning; the last plan stays."""
        with self.store.lock:
            if self.store.state.planning:
                self.store.change(cancelling=True, activity="stopping after the solves that are under way…")
        self._plans.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until nothing is under way (scripts and tests). False when the time ran out."""
        return self._plans.wait(timeout) and self._replans.wait(timeout)

    def _fresh_model(self, model: str) -> dict[str, Any]:
        """What does not carry over to another model: its microbatch, its B, its number of layers."""
        microbatch, count = self.sources.start(model, None)
        return {"microbatch": microbatch, "num_microbatches": count, "num_layers": None}

    def _run_plan(self, settings: Settings, cancel: threading.Event) -> None:
        change, start = self.store.change, time.monotonic()
        change(planning=True, cancelling=False, progress=None, problem=None, activity=f"capturing {settings.model}…")
        outcome: dict[str, Any]
        try:
            cluster = self.sources.cluster(settings)
            graph = self.sources.graph(settings)
            _stop_if(cancel)
            change(activity="clustering operators into layers…")
            plan = self._planner.plan(
                graph, cluster, num_microbatches=settings.num_microbatches, delta=settings.delta,
                num_layers=settings.num_layers, progress=self._report, cancel=cancel,
            )  # fmt: skip
            _stop_if(cancel)
        except CancelledError:
            took = units.seconds(time.monotonic() - start)
            outcome = {"activity": f"Cancelled after {took}. What was solved is kept: Plan goes on from there."}
        except AlpaExploreError as error:
            outcome = {"problem": Problem(what=error.what, found=error.found, remedy=error.remedy), "activity": ""}
        except Exception as error:  # a thread has no cell to show it in
            outcome = {"problem": _fault(error), "activity": ""}
        else:
            self._accept(plan, settings, time.monotonic() - start)
            return
        change(planning=False, cancelling=False, progress=None, **outcome)

    def _accept(self, plan: Plan, settings: Settings, seconds: float) -> None:
        with self.store.lock:
            wanted = self.store.state.settings
            planned = replace(settings, num_layers=plan.options.num_layers)
            if replace(wanted, num_microbatches=settings.num_microbatches) == settings:
                wanted = replace(wanted, num_layers=planned.num_layers)
            found = plan.statistics
            self.store.change(
                plan=plan, planned=planned, settings=wanted,
                planning=False, cancelling=False, progress=None, problem=None,
                activity=f"Planned in {units.seconds(seconds)}: {found.solves} sharding problems, "
                f"{found.distinct_solves} distinct, {found.cached_solves} known before.",
            )  # fmt: skip
            if wanted.num_microbatches != settings.num_microbatches:  # B moved on meanwhile
                self._replans.submit(wanted.num_microbatches)

    def _run_replan(self, num_microbatches: int, cancel: threading.Event) -> None:
        before = self.store.state.plan
        if before is None:
            return
        self.store.change(replanning=True)
        outcome: dict[str, Any]
        try:
            outcome = {"plan": self._planner.replan(before, num_microbatches=num_microbatches), "problem": None}
        except AlpaExploreError as error:
            outcome = {"problem": Problem(what=error.what, found=error.found, remedy=error.remedy)}
        except Exception as error:
            outcome = {"problem": _fault(error)}
        with self.store.lock:
            state = self.store.state
            if state.plan is not before or state.planned is None:
                outcome = {}  # a full plan came meanwhile; it asks for the newest B itself
            elif "plan" in outcome:
                outcome["planned"] = replace(state.planned, num_microbatches=num_microbatches)
            # Shown even when a newer value waits (then `cancel` is set): while a slider moves, figures move along.
            self.store.change(replanning=cancel.is_set(), **outcome)

    def _report(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._last_report >= REPORT_SECONDS or progress.done == progress.total:
            self._last_report = now
            if not self.store.state.cancelling:
                self.store.change(progress=progress, activity=progress.pass_name)


def _stop_if(cancel: threading.Event) -> None:
    if cancel.is_set():
        raise CancelledError("Planning was cancelled", found="a cancel or a newer request", remedy="Press Plan again.")


def _fault(error: Exception) -> Problem:
    return Problem(
        what="The planner failed", found=f"{type(error).__name__}: {error}",
        remedy="This is a fault of alpa_explore: please report it with the details below.",
        detail="".join(traceback.format_exception(error)),
    )  # fmt: skip
