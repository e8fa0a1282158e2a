"""What happens when something is asked for: planning in the background, what the costs at hand answer at once, and the
history of the plans that were shown."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from alpa_explore import units
from alpa_explore.errors import AlpaExploreError, CancelledError, OptionError
from alpa_explore.figures.keys import read_key, valid_key
from alpa_explore.sharding.spec_constraint import SpecConstraint, constrained, mappings
from alpa_explore.tracing.cancelling import cancelled_by
from alpa_explore_widgets.session.backend import Planner
from alpa_explore_widgets.session.background import EachInTurn, NewestWins
from alpa_explore_widgets.session.history import Entry
from alpa_explore_widgets.session.runs import Runs
from alpa_explore_widgets.session.sources import Sources, figures_apart
from alpa_explore_widgets.session.state import REPLANNED, Regrets, Settings, State, Store, problem_of, settings_of

if TYPE_CHECKING:
    from alpa_explore.execution.progress import Progress
    from alpa_explore.plans.plan import Plan

REPORT_SECONDS = 0.1
"""Progress is shown at most this often: a report is a message to the browser."""
SAME_MOVE_SECONDS = 1.5
"""Replans that follow each other this quickly are one movement of a slider: one entry of the history."""

_Question: TypeAlias = Callable[[], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """Settings to plan for, one after the other."""

    wanted: tuple[Settings, ...]
    aside: bool = False
    """Keep the plans among those tried, and show none."""
    baselines: tuple[str, ...] = ()
    """One for each of `wanted`, or none at all."""


class Session:
    """Holds the state of one explorer and answers to its controls; every method returns at once."""

    def __init__(self, settings: Settings, sources: Sources, planner: Planner) -> None:
        self.store = Store(State(settings=settings))
        self.sources = sources
        self._planner = planner
        self._plans: NewestWins[_Job] = NewestWins(self._run_plans, "alpa-explore plan")
        self._replans: NewestWins[Settings] = NewestWins(self._run_replan, "alpa-explore replan")
        self._questions: NewestWins[_Question] = NewestWins(self._run_ask, "alpa-explore ask")
        self._files: EachInTurn[_Question] = EachInTurn(self._run_ask, "alpa-explore files")
        self.runs = Runs(self.store, sources, planner)
        self._last_report = 0.0
        self._last_move = float("-inf")

    def set(self, **changes: Any) -> None:
        """Change settings. What `replan` can answer is answered at once, anything else waits for `plan`."""
        with self.store.lock:
            old = self.store.state.settings
            if "model" in changes and changes["model"] != old.model:
                changes = self._fresh_model(changes["model"]) | changes
            settings = replace(old, **changes)
            moved = any(getattr(settings, n) != getattr(old, n) for n in REPLANNED)
            answered = moved and self.store.state.plan is not None
            self.store.change(settings=settings, **({"replanning": True} if answered else {}))
            if answered:
                self._replans.submit(settings)

    def constraint(self, new: SpecConstraint) -> None:
        """Pin an operator to a spec, or keep it from one, in place of what contradicts that."""
        with self.store.lock:
            self.set(spec_constraints=constrained(self.store.state.settings.spec_constraints, new))

    def take_back(self, *gone: SpecConstraint) -> None:
        """Without these spec constraints."""
        with self.store.lock:
            self.set(
                spec_constraints=tuple(
                    constraint for constraint in self.store.state.settings.spec_constraints if constraint not in gone
                )
            )

    def bring(self, plan: Plan) -> None:
        """Show a plan that was opened, with its own settings. OptionError for a model that cannot be chosen here."""
        settings = settings_of(plan)
        known = {name for name, *_ in self.sources.model_choices()}
        devices = {name for name, *_ in self.sources.device_choices()}
        if settings.model not in known or settings.device not in devices:
            raise OptionError(
                "The plan can be shown, but not in this explorer",
                found=f"{settings.model} on {plan.cluster}, which is not in its lists",
                remedy="Show it by explore(ax.load_plan(file)) in a cell.",
            )
        apart = figures_apart(plan.cluster, self.sources.plain_cluster(settings))
        self.start_from(plan, replace(settings, **apart))

    def start_from(self, plan: Plan, settings: Settings | None = None) -> None:
        """Show a plan that was made elsewhere, as an answer to `settings` (those of now unless given)."""
        with self.store.lock:
            settings = settings or self.store.state.settings
            self._plans.cancel()
            self._forget_replans()
            self._show(plan, settings, settings, activity="As given; Plan makes it again.", problem=None)

    def plan(self) -> None:
        """Run the whole planner for the present settings; a run under way is given up."""
        self._plans.submit(_Job(wanted=(self.store.state.settings,)))

    def try_each(self, wanted: tuple[Settings, ...]) -> None:
        """Run the planner for one setting after the other; each becomes a plan that was tried, while the plan on screen
        and what the controls ask for stay."""
        self._plans.submit(_Job(wanted=wanted, aside=True))

    def try_baselines(self, kinds: tuple[str, ...]) -> None:
        """The same for what people do by hand, with the settings of the plan on screen."""
        planned = self.store.state.planned
        if planned is not None:
            self._plans.submit(_Job(wanted=(planned,) * len(kinds), aside=True, baselines=kinds))

    def compare(self) -> None:
        """Solve the first layer of the selected stage by every formulation."""
        state = self.store.state
        plan, stage = state.plan, int(read_key(state.selection).get("stage", 0))
        if plan is not None:
            said = "Formulations were compared: see Solvers."
            self.ask(lambda: {"comparison": self._planner.compare(plan, stage), "activity": said}, "comparing…")

    def ask_regrets(self) -> None:
        """Find what the other strategies of the selected operator would cost."""
        state = self.store.state
        plan, selection, parts = state.plan, state.selection, read_key(state.selection)
        if plan is not None and "operator" in parts:

            def look() -> dict[str, Any]:
                rows = self._planner.regrets(plan, int(parts["stage"]), parts["operator"])
                return {"regrets": Regrets(plan=plan, selection=selection, rows=rows), "activity": ""}

            self.ask(look, f"solving the stage for every strategy of {parts['operator']}…")

    def ask(self, question: _Question, activity: str) -> None:
        """Run `question` beside the notebook; it returns the changes of the state that answer it. The newest wins."""
        self.store.change(activity=activity, problem=None)
        self._questions.submit(question)

    def write(self, file: _Question) -> None:
        """The same for a file that is to be made: each is, whatever else is asked meanwhile."""
        self.store.change(activity="writing a file…", problem=None)
        self._files.submit(file)

    def cancel(self) -> None:
        """Stop planning; the last plan stays."""
        with self.store.lock:
            if self.store.state.planning:
                self.store.change(cancelling=True, activity="stopping after the solves that are under way…")
            self._plans.cancel()
            self._forget_replans()

    def go(self, place: int) -> None:
        """Show an entry of the history, with its settings; nothing is planned."""
        with self.store.lock:
            history = self.store.state.history
            if not 0 <= place < len(history.entries):
                return
            entry = history.entries[place]
            self._forget_replans()
            self.store.change(
                history=history.at(place),
                plan=entry.plan,
                planned=entry.settings,
                settings=entry.settings,
                selection=valid_key(entry.plan, self.store.state.selection),
                problem=None,
                activity=f"Plan {place + 1} of the {len(history.entries)} that were tried.",
            )

    def undo(self) -> None:
        """Back to the plan before."""
        self.go(self.store.state.history.place - 1)

    def redo(self) -> None:
        """Forth again."""
        self.go(self.store.state.history.place + 1)

    def pin(self, *, on: bool = True) -> None:
        """Compare with the plan on screen from now on, or with none."""
        self.store.change(pinned=self.store.state.plan if on else None)

    def select(self, chosen: str) -> None:
        """Select what a key names, everywhere; '' for nothing. A plan that was tried is shown instead."""
        with self.store.lock:
            parts, plan = read_key(chosen), self.store.state.plan
            if "plan" in parts:
                self.go(int(parts["plan"]))
            elif plan is not None:
                self.store.change(selection=valid_key(plan, chosen))

    def close(self) -> None:
        """Stop all that goes on: planning, and the processes of a run."""
        for work in self._all:
            work.cancel()
        self.runs.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until nothing is under way (scripts and tests). False when the time ran out."""
        return all(work.wait(timeout) for work in self._all)

    @property
    def _all(self) -> tuple[NewestWins[Any], ...]:
        return (self._plans, self._replans, self._questions, self._files)

    def _fresh_model(self, model: str) -> dict[str, Any]:
        """What does not carry over to another model: its microbatch, its B, its layers, its rematerialisation, its
        precision, its operators."""
        microbatch, count = self.sources.start(model, None)
        return {
            "microbatch": microbatch,
            "num_microbatches": count,
            "num_layers": None,
            "rematerialization": None,
            "precision": None,
            "spec_constraints": (),
        }

    def _run_plans(self, job: _Job, cancel: threading.Event) -> None:
        change, start = self.store.change, time.monotonic()
        without = 0
        # A fault in one of several stays on screen while the others are planned.
        change(problem=None)
        for number, settings in enumerate(job.wanted):
            label = f"{number + 1} of {len(job.wanted)}: " if job.aside else ""
            change(
                planning=True,
                cancelling=False,
                progress=None,
                activity=f"{label}capturing {settings.model}…",
            )
            outcome: dict[str, Any]
            try:
                plan = self._planned(settings, cancel, label, job.baselines[number] if job.baselines else None)
            except CancelledError:
                took = units.seconds(time.monotonic() - start)
                outcome = {"activity": f"Cancelled after {took}. What was solved is kept: Plan goes on from there."}
                cancel.set()
            except AlpaExploreError as error:
                without += 1
                problem = problem_of(error)
                outcome = {} if job.aside else {"problem": problem, "activity": ""}
            except Exception as error:  # a thread has no cell to show it in
                without += 1
                outcome = {"problem": problem_of(error), "activity": ""}
            else:
                outcome = self._accept(plan, settings, time.monotonic() - start, aside=job.aside)
            last = cancel.is_set() or number == len(job.wanted) - 1
            if last and job.aside and not cancel.is_set():
                none = f"; {without} of them have no plan" if without else ""
                outcome["activity"] = f"Tried {len(job.wanted)}{none}: see Why and Search."
            change(**({"planning": False, "cancelling": False, "progress": None} if last else {}), **outcome)
            if cancel.is_set():
                return

    def _planned(self, settings: Settings, cancel: threading.Event, label: str, by_hand: str | None) -> Plan:
        cluster = self.sources.cluster(settings)
        with cancelled_by(cancel):
            graph = self.sources.graph(settings)
        _stop_if(cancel)
        if by_hand is not None:
            self.store.change(activity=f"{label}{by_hand}…")
            return self._planner.baseline(
                graph,
                cluster,
                by_hand,
                num_microbatches=settings.num_microbatches,
                num_layers=settings.num_layers,
                delta=settings.delta,
                cancel=cancel,
                rematerialization=settings.rematerialization if settings.rematerialization != "auto" else None,
            )
        self.store.change(activity=f"{label}clustering operators into layers…")
        extra: dict[str, Any] = {
            "solver": settings.solver if settings.solver != "auto" else None,
            "rematerialization": settings.rematerialization,
            "pipeline": settings.pipeline or None,
            **mappings(settings.spec_constraints),
        }
        plan = self._planner.plan(
            graph,
            cluster,
            num_microbatches=settings.num_microbatches,
            delta=settings.delta,
            num_layers=settings.num_layers,
            progress=self._report,
            cancel=cancel,
            **{name: value for name, value in extra.items() if value is not None},
        )
        _stop_if(cancel)
        return plan

    def _accept(self, plan: Plan, settings: Settings, seconds: float, *, aside: bool) -> dict[str, Any]:
        """Show a plan, or only keep it among those tried; returns what there is to say about it."""
        with self.store.lock:
            planned = replace(settings, num_layers=plan.options.num_layers)
            if aside:
                return {"history": self.store.state.history.add_aside(Entry(settings=planned, plan=plan))}
            wanted = self.store.state.settings
            if settings.needs_only_replan(wanted):
                wanted = replace(wanted, num_layers=planned.num_layers)
            found = plan.statistics
            self._show(
                plan,
                planned,
                wanted,
                problem=None,
                planning=False,
                cancelling=False,
                progress=None,
                activity=f"Planned in {units.seconds(seconds)}: {found.solves} sharding problems, "
                f"{found.distinct_solves} distinct, {found.cached_solves} known before.",
            )
            if wanted != planned and planned.needs_only_replan(wanted):  # B moved on meanwhile
                self._replans.submit(wanted)
            return {}

    def _show(self, plan: Plan, planned: Settings, wanted: Settings, *, instead: bool = False, **more: Any) -> None:
        state = self.store.state
        self.store.change(
            plan=plan,
            planned=planned,
            settings=wanted,
            selection=valid_key(plan, state.selection),
            history=state.history.add(Entry(settings=planned, plan=plan), instead=instead),
            **more,
        )

    def _forget_replans(self) -> None:
        """What they answer is no longer asked. One that had not begun will not say that it ends."""
        self._replans.cancel()
        self.store.change(replanning=False)

    def _run_replan(self, wanted: Settings, cancel: threading.Event) -> None:
        with self.store.lock:
            before, planned = self.store.state.plan, self.store.state.planned
            if before is None or planned is None:
                self.store.change(replanning=False)
                return
            self.store.change(replanning=True)
        problem, plan = None, None
        try:
            pipeline = {
                name: getattr(wanted, name)
                for name in ("schedule", "communication")
                if getattr(before.options.pipeline, name) != getattr(wanted, name)
            }
            plan = self._planner.replan(
                before,
                graph=lambda: self.sources.graph(planned),
                num_microbatches=wanted.num_microbatches,
                delta=wanted.delta,
                cancel=cancel,
                progress=self._report_replan,
                **pipeline,
            )
        except CancelledError:
            plan = None  # a newer value waits, or it is no longer asked
        except Exception as error:
            problem = problem_of(error)
        with self.store.lock:
            state, newer = self.store.state, self._replans.has_newer
            done: dict[str, Any] = {"replanning": newer}
            if not state.planning and state.progress is not None:
                done |= {"progress": None, "activity": ""}
            # Shown even when a newer value waits: while a slider moves, figures move along.
            asked = newer or all(getattr(state.settings, n) == getattr(wanted, n) for n in REPLANNED)
            if state.plan is not before or not asked:
                self.store.change(**done)  # a full plan came meanwhile, and asks for the newest B; or one of before
            elif plan is None:
                self.store.change(**done, **({} if problem is None else {"problem": problem}))
            else:
                planned = replace(planned, **{name: getattr(wanted, name) for name in REPLANNED})
                now = time.monotonic()
                moving, self._last_move = now - self._last_move < SAME_MOVE_SECONDS, now
                self._show(plan, planned, state.settings, instead=moving, problem=None, **done)

    def _run_ask(self, question: _Question, _cancel: threading.Event) -> None:
        outcome: dict[str, Any]
        try:
            outcome = question()
        except Exception as error:
            outcome = {"problem": problem_of(error), "activity": ""}
        self.store.change(**outcome)

    def _report_replan(self, progress: Progress) -> None:
        if not self.store.state.planning:
            self._report(progress)

    def _report(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._last_report >= REPORT_SECONDS or progress.done == progress.total:
            self._last_report = now
            if not self.store.state.cancelling:
                self.store.change(progress=progress, activity=progress.pass_name)


def _stop_if(cancel: threading.Event) -> None:
    if cancel.is_set():
        raise CancelledError("Planning was cancelled", found="a cancel or a newer request", remedy="Press Plan again.")
