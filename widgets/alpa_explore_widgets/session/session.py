"""The actions of a user: each method changes the state or starts work in the background, and returns at once."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from alpa_explore.baselines.layout import BASELINE
from alpa_explore.cluster import Cluster
from alpa_explore.errors import OptionError
from alpa_explore.figures.keys import read_key, valid_key
from alpa_explore.plans.plan import Plan
from alpa_explore.sharding.spec_constraint import SpecConstraint, constrained
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.asking.layouts import LayoutQuestions, question_of
from alpa_explore_widgets.session.asking.questions import settings_of_change
from alpa_explore_widgets.session.backend import Backend
from alpa_explore_widgets.session.background import EachInTurn, NewestWins
from alpa_explore_widgets.session.history import History
from alpa_explore_widgets.session.levers import Lever, levers
from alpa_explore_widgets.session.planning import Planning, PlanningJob
from alpa_explore_widgets.session.runs import Attaching, Profiling, TrainingRuns
from alpa_explore_widgets.session.settings import (
    DEVICE_SETTINGS,
    MODEL_SETTINGS,
    PLANNED_SETTINGS,
    REPLAN_SETTINGS,
    SCALED_SETTINGS,
    Settings,
    device_setting,
    settings_of,
)
from alpa_explore_widgets.session.sources import Sources, device_overrides
from alpa_explore_widgets.session.state import Offer, Regrets, State, StateStore, fault_of

_Query: TypeAlias = Callable[[], dict[str, Any]]
"""Work for a background thread; returns the fields of the state that it changes."""
_OF_LAYERS = (*SCALED_SETTINGS, "model", "device", "num_layers", "delta")
"""Settings of plans whose stages have the same layers and submeshes to choose from."""


class Session:
    """The state of one explorer, the actions that change it, and the background threads that serve it."""

    def __init__(self, settings: Settings, sources: Sources, backend: Backend) -> None:
        self.store = StateStore(State(settings=settings))
        self.sources = sources
        self._backend = backend
        self.planning = Planning(self.store, sources, backend)
        self._queries: NewestWins[_Query] = NewestWins(self._run, "alpa-explore query")
        self._files: EachInTurn[_Query] = EachInTurn(self._run, "alpa-explore files")
        self.runs = TrainingRuns(self.store, sources, backend)
        self.attaching = Attaching(self.store, backend)
        self.profiling = Profiling(self.store, backend, self.plan_on)
        self.layouts = LayoutQuestions(self.store, sources, backend)

    def set(self, **changes: Any) -> None:
        """Change settings. Some are answered or estimated at once (`settings`), and what is estimated is planned as
        soon as they rest; any other one waits for `plan`; while one of those differs from the plan on screen, as
        another model, what needs the planner waits with it."""
        with self.store.lock:
            state = self.store.state
            old, planned = state.settings, state.plan_settings
            settings = self._changed(changes)
            if planned is not None and settings.model != planned.model:
                self.planning.forget_replans()
                self.store.change(settings=settings)
                return
            # Back at the model of the plan, settings that were changed meanwhile count as changed now.
            before = planned if planned is not None and old.model != settings.model else old
            replanning = (
                state.plan is not None
                and not settings.equal_in(REPLAN_SETTINGS, before)
                and (planned is None or settings.equal_in(SCALED_SETTINGS, planned))
            )
            moved = planned is not None and not planned.waits_for_plan(settings) and self._moves(state, settings)
            follows = moved and (state.estimated or not settings.equal_in(PLANNED_SETTINGS, planned or settings))
            now = {"planning": True, "aside": False, "progress": None, "activity": ""} if follows else {}
            self.store.change(settings=settings, **({"replanning": True} if replanning else {}), **now)
            if replanning:
                self.planning.replans.submit(settings)
            if follows:
                self.planning.plans.submit(PlanningJob(settings=(settings,), rest_seconds=tuning.REST_SECONDS))
            elif moved:
                self.planning.plans.cancel()

    def _moves(self, before: State, settings: Settings) -> bool:
        """Whether the planner has to follow, or followed until now. It puts no other layout in place of a baseline."""
        if before.plan is None or before.plan_settings is None or before.plan.options.baseline:
            return False
        known = (before.settings, before.plan_settings)
        return before.estimated or not all(settings.equal_in(PLANNED_SETTINGS, other) for other in known)

    def _changed(self, changes: dict[str, Any]) -> Settings:
        """The settings with these changes, and with what belongs to another model or device."""
        old = self.store.state.settings
        if "model" in changes and changes["model"] != old.model:
            changes = self._settings_of_model(changes["model"]) | changes
        if "device" in changes and changes["device"] != old.device:
            changes = dict.fromkeys(DEVICE_SETTINGS) | changes
        return replace(old, **changes)

    def _set_for_plan(self, **changes: Any) -> None:
        """Change settings for which the planner runs at once: the plan on screen is not made again for them."""
        self.planning.forget_replans()
        self.store.change(settings=self._changed(changes))

    def add_constraint(self, constraint: SpecConstraint) -> None:
        """Require or forbid a spec of an operator, in place of constraints that contradict it."""
        with self.store.lock:
            self.set(spec_constraints=constrained(self.store.state.settings.spec_constraints, constraint))

    def remove_constraints(self, *removed: SpecConstraint) -> None:
        """Remove spec constraints."""
        with self.store.lock:
            constraints = self.store.state.settings.spec_constraints
            self.set(spec_constraints=tuple(c for c in constraints if c not in removed))

    def open_plan(self, plan: Plan) -> None:
        """Show a plan from a file, with its own settings. OptionError when the lists of this explorer do not have its
        model or its device."""
        settings = settings_of(plan)
        models = {name for name, *_ in self.sources.model_choices()}
        devices = {name for name, *_ in self.sources.device_choices()}
        if settings.model not in models or settings.device not in devices:
            raise OptionError(
                "The plan can be shown, but not in this explorer",
                found=f"{settings.model} on {plan.cluster}, which is not in its lists",
                remedy="Show it by explore(ax.load_plan(file)) in a cell.",
            )
        overrides: dict[str, Any] = device_overrides(plan.cluster, self.sources.preset_cluster(settings))
        self.show_plan(plan, replace(settings, **overrides))

    def show_plan(self, plan: Plan, settings: Settings | None = None) -> None:
        """Show a plan that was made elsewhere with `settings` (by default those of the controls)."""
        with self.store.lock:
            settings = settings or self.store.state.settings
            self.planning.plans.cancel()
            self.planning.forget_replans()
            self.planning.show(
                plan, settings, settings, activity="A loaded plan. Press Plan to compute it again.", fault=None
            )

    def plan(self) -> None:
        """Run the whole planner for the present settings; a run under way is cancelled."""
        self.planning.plans.submit(PlanningJob(settings=(self.store.state.settings,)))

    def take(self, offer: Offer) -> None:
        """Plan with the settings that an offer changes."""
        with self.store.lock:
            self._set_for_plan(**dict(offer.changes))
            self.plan()

    def try_settings(self, settings: tuple[Settings, ...], names: tuple[str, ...]) -> None:
        """Run the planner for each of `settings` and add the plans to the history; the plan on screen and the controls
        stay as they are. `names` are those of the attempts."""
        self.planning.plans.submit(PlanningJob(settings=settings, show=False, names=names))

    def levers(self) -> tuple[Lever, ...]:
        """Single changes of the settings of the plan on screen; none before the first plan."""
        state = self.store.state
        if state.plan is None or state.plan_settings is None:
            return ()
        return levers(state.plan_settings, state.plan, self.sources)

    def try_levers(self, name: str = "", *, free: bool = False) -> None:
        """Run the planner for each lever that has no plan yet, or for that of this name, or for the free ones, in the
        order of what they promise; the plans are added to the history."""
        history = self.store.state.history
        asked = [
            lever
            for lever in self.levers()
            if history.place(lever.settings) < 0 and lever.name in (name or lever.name,) and (lever.free or not free)
        ]
        if asked:
            asked.sort(key=lambda lever: (not lever.free, -lever.promise))
            self.try_settings(tuple(lever.settings for lever in asked), tuple(lever.name for lever in asked))

    def try_baselines(self, kinds: tuple[str, ...]) -> None:
        """Make these baselines with the settings of the plan on screen, and add them to the history."""
        plan_settings = self.store.state.plan_settings
        if plan_settings is not None:
            settings = (plan_settings,) * len(kinds)
            self.planning.plans.submit(PlanningJob(settings=settings, show=False, baselines=kinds))

    def plan_on(self, cluster: Cluster) -> None:
        """Plan on another cluster."""
        with self.store.lock:
            self.sources.add_cluster(cluster)
            self._set_for_plan(
                nodes=cluster.nodes, devices_per_node=cluster.devices_per_node, device=device_setting(cluster)
            )
            self.plan()

    def open_change(self, change: str) -> None:
        """Show the plan that a mark stands for: on another cluster, with another B, or with other stages."""
        with self.store.lock:
            state = self.store.state
            name, _, value = change.partition("=")
            if name == "cluster":
                self.plan_on(Cluster.parse(value))
                return
            changes = self._settings_of(change)
            if state.plan_settings is None or changes is None:
                self.store.change(activity="No plan that is known has this stage: nothing was opened.")
                return
            settings = replace(state.plan_settings, **changes)
            if settings.needs_only_replan(state.plan_settings):
                self.set(**changes)
                return
            self._set_for_plan(**changes)
            self.plan()

    def _settings_of(self, change: str) -> dict[str, Any] | None:
        """Those of the plan that a mark stands for. The figure with the mark may be of a plan that another one has
        replaced on screen since, whose costs have stages that those of the new one lack."""
        state, shown = self.store.state, self.store.state.plan_settings
        if state.plan is None or shown is None:
            return None
        alike = (e.plan for e in reversed(state.history.entries) if e.settings.equal_in(_OF_LAYERS, shown))
        found = (settings_of_change(plan, change) for plan in (state.plan, *alike))
        return next((changes for changes in found if changes is not None), None)

    def open_layout(self, rank: int, *, show: bool = True) -> None:
        """Plan the uniform layout of this rank among those on screen, as a baseline; without `show` aside."""
        with self.store.lock:
            answer = self.store.state.layouts
            if answer is None or answer.found is None or not 0 < rank <= len(answer.found.ranked):
                return
            if answer.question != question_of(self.store.state.settings):
                self.store.change(activity="The layouts are those of other settings: press Price layouts first.")
                return
            row = answer.found.ranked[rank - 1]
            layout = row.layout
            changes: dict[str, Any] = {
                "microbatch": layout.samples,
                "num_microbatches": layout.microbatches,
                "rematerialization": layout.rematerialization,
            }
            if show:
                self._set_for_plan(**changes)
            settings, degrees = self._changed(changes), tuple(layout.degrees(row.blocks).items())
            self.planning.plans.submit(
                PlanningJob(settings=(settings,), show=show, baselines=(BASELINE,), degrees=degrees, names=(row.words,))
            )

    def _aside(self, name: str, value: str = "") -> None:
        """Plan a lever or a baseline of this name, or the layout of this rank, and add it to the history; or keep the
        plan at this place of the history, or no longer."""
        if name == "lever":
            self.try_levers(value)
        elif name == "baseline":
            self.try_baselines((value,))
        elif name == "layout":
            self.open_layout(int(value), show=False)
        elif name == "keep" and value.isdecimal():
            self.keep(int(value))

    def compute_regrets(self) -> None:
        """Compute the cost of the other strategies of the selected operator."""
        state = self.store.state
        plan, selection, parts = state.plan, state.selection, read_key(state.selection)
        if plan is not None and "operator" in parts:

            def regrets() -> dict[str, Any]:
                rows = self._backend.regrets(plan, int(parts["stage"]), parts["operator"])
                return {"regrets": Regrets(plan=plan, selection=selection, rows=rows), "activity": ""}

            self.run_query(regrets, f"solving the stage for every strategy of {parts['operator']}…")

    def plan_for_attached(self) -> None:
        """Plan for the hosts that were attached, where the planner can."""
        with self.store.lock:
            attachment = self.store.state.attachment
            if attachment is None or attachment.cluster is None:
                return
            self.plan_on(attachment.cluster)

    def run_query(self, query: _Query, activity: str) -> None:
        """Run `query` in the background and apply the changes of the state that it returns. The newest query wins."""
        self.store.change(activity=activity, fault=None)
        self._queries.submit(query)

    def write_file(self, query: _Query) -> None:
        """Like `run_query`, for a file to be written: every file is written, whatever is requested meanwhile."""
        self.store.change(activity="writing a file…", fault=None)
        self._files.submit(query)

    def cancel(self) -> None:
        """Stop planning; the last plan stays."""
        with self.store.lock:
            if self.store.state.planning:
                self.store.change(cancelling=True, activity="stopping after the solves that are under way…")
            self.planning.plans.cancel()
            self.planning.forget_replans()
            self.planning.fit.worker.cancel()

    def show_entry(self, position: int) -> None:
        """Show an entry of the history with its settings; nothing is planned."""
        with self.store.lock:
            history = self.store.state.history
            if 0 <= position < len(history.entries):
                self._show_history(history.at(position))

    def _show_history(self, history: History) -> None:
        """Show the entry at the position of a history."""
        entry = history.entries[history.position]
        self.planning.forget_replans()
        if self.store.state.following:  # its plan would come in place of the entry
            self.planning.plans.cancel()
        self.store.change(
            history=history,
            plan=entry.plan,
            plan_settings=entry.settings,
            settings=entry.settings,
            offers=None,
            selection=valid_key(entry.plan, self.store.state.selection),
            fault=None,
            activity=f"Back to number {history.position + 1} of the {len(history.entries)} plans in the history.",
        )

    def undo(self) -> None:
        """Take back the settings that wait for `plan`; where there are none, show the plan that was viewed before."""
        with self.store.lock:
            state = self.store.state
            if state.history.entries:
                changed = state.out_of_date or state.estimated
                self._show_history(state.history if changed else state.history.back())

    def redo(self) -> None:
        """Show the plan from which the user went back."""
        with self.store.lock:
            history = self.store.state.history
            if history.can_redo:
                self._show_history(history.forward())

    def keep(self, position: int) -> None:
        """Keep an entry of the history, so that it stays whatever else is tried, or no longer."""
        with self.store.lock:
            history = self.store.state.history
            if 0 <= position < len(history.entries):
                kept = history.entries[position].kept
                self.store.change(history=history.keep(position, on=not kept))

    def pin(self, *, on: bool = True) -> None:
        """Compare with the plan on screen from now on, or with none."""
        self.store.change(pinned=self.store.state.plan if on else None)

    def select(self, key: str) -> None:
        """Select what `key` names in every figure and table; '' for nothing. The key of a plan of the history shows
        that plan, that of a layout or of other settings plans it, also aside."""
        with self.store.lock:
            parts, plan = read_key(key), self.store.state.plan
            if "aside" in parts:
                self._aside(*parts["aside"].split("=", 1))
            elif "layout" in parts:
                self.open_layout(int(parts["layout"]))
            elif "change" in parts:
                self.open_change(parts["change"])
            elif "plan" in parts:
                self.show_entry(int(parts["plan"]))
            elif plan is not None:
                self.store.change(selection=valid_key(plan, key))

    def close(self) -> None:
        """Stop planning and the processes of a training run."""
        for worker in self._workers:
            worker.cancel()
        self.planning.end_of_move.cancel()
        self.attaching.cancel()
        self.profiling.cancel()
        self.runs.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until no planning, query or file is under way (for scripts and tests). Returns False on a timeout."""
        return all(worker.wait(timeout) for worker in self._workers)

    @property
    def _workers(self) -> tuple[NewestWins[Any], ...]:
        return (
            self.planning.plans,
            self.planning.replans,
            self.planning.fit.worker,
            self.layouts.layouts.worker,
            self.layouts.scaling.worker,
            self._queries,
            self._files,
        )

    def _settings_of_model(self, model: str) -> dict[str, Any]:
        """The settings that do not carry over to another model: those of the plan on screen if `model` is its model,
        else the defaults of `model`."""
        planned = self.store.state.plan_settings
        if planned is not None and planned.model == model:
            return {name: getattr(planned, name) for name in MODEL_SETTINGS}
        return self.sources.model_defaults(model)

    def _run(self, query: _Query, _cancel: threading.Event) -> None:
        outcome: dict[str, Any]
        try:
            outcome = query()
        except Exception as error:
            outcome = {"fault": fault_of(error), "activity": ""}
        self.store.change(**outcome)
