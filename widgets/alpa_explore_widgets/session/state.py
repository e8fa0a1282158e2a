"""What the explorer knows: what is asked for, the last plan that worked, and what is going on. No widgets here."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from alpa_explore.errors import AlpaExploreError
from alpa_explore.models import catalog
from alpa_explore.sharding.spec_constraint import SpecConstraint
from alpa_explore_widgets.session.history import History

if TYPE_CHECKING:
    from alpa_explore.execution.progress import Progress
    from alpa_explore.intra_op.formulations.comparison import Comparison
    from alpa_explore.plans.plan import Plan
    from alpa_explore.questions.what_if import Regret
    from alpa_explore_widgets.session.runs import RunCheck, TrainingRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the controls ask for."""

    model: str
    """A catalogue name, or the name under which a graph was given."""
    microbatch: int
    """Samples in one microbatch."""
    nodes: int
    devices_per_node: int
    device: str
    """A preset, or the name of the device of a cluster that was given."""
    num_microbatches: int
    """B."""
    delta: float
    num_layers: int | None
    """None: as many as the planner thinks right for the model."""
    memory_bytes: float | None = None
    """Of a device; here and in the next three None: as the device has it."""
    peak_flops: float | None = None
    """FLOP/s of a device in half precision; its other rates follow in proportion."""
    inside_bandwidth: float | None = None
    """Bytes per second of the link inside a node."""
    between_bandwidth: float | None = None
    """Bytes per second of the network of a node."""
    rematerialization: bool | str | None = None
    """None: as the model has it; 'auto': where a stage needs it."""
    precision: str | None = None
    """The dtype in which weights are read; None: as the model has it."""
    solver: str = "auto"
    schedule: str = "1f1b"
    communication: bool = False
    submesh_space: str = "all"
    spec_constraints: tuple[SpecConstraint, ...] = ()
    """Specs that operators are pinned to, or kept from."""

    def needs_only_replan(self, other: Settings) -> bool:
        """True when `other` differs at most in what the costs already known answer."""
        return replace(self, **{name: getattr(other, name) for name in REPLANNED}) == other

    @property
    def pipeline(self) -> dict[str, Any]:
        """The fields of PipelineOptions that are not the paper's."""
        given = {name: getattr(self, name) for name in ("schedule", "communication", "submesh_space")}
        return {name: value for name, value in given.items() if value not in ("1f1b", False, "all")}


REPLANNED = ("num_microbatches", "delta", "schedule", "communication")
"""What `replan` answers at once."""


def settings_of(plan: Plan) -> Settings:
    """The settings that `plan` answers."""
    model, precision = plan.model.recipe or plan.model.name, plan.model.precision
    usual = model in catalog.names() and catalog.entry(model).precision == precision
    return Settings(
        model=model,
        precision=None if usual else precision,
        microbatch=plan.model.samples,
        nodes=plan.cluster.nodes,
        devices_per_node=plan.cluster.devices_per_node,
        device=plan.cluster.device.name,
        num_microbatches=plan.options.num_microbatches,
        delta=plan.options.delta,
        num_layers=plan.options.num_layers,
        rematerialization=plan.options.rematerialization or plan.model.rematerialization,
        solver=plan.options.solver,
        schedule=plan.options.pipeline.schedule,
        communication=plan.options.pipeline.communication,
        submesh_space=plan.options.pipeline.submesh_space,
        spec_constraints=plan.options.spec_constraints,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why there is no new plan, for people."""

    what: str
    found: str
    remedy: str
    detail: str = ""
    """A traceback, when the fault is ours; the end of a log, when a run failed."""


def problem_of(error: Exception, failed: str = "The planner failed") -> Problem:
    """An error as it is shown. One that is not for users is a fault of ours; `failed` says of what."""
    if isinstance(error, AlpaExploreError):
        remedy, _, log = error.remedy.partition("\n")
        return Problem(what=error.what, found=error.found, remedy=remedy, detail=log)
    return Problem(
        what=failed,
        found=f"{type(error).__name__}: {error}",
        remedy="This is a fault of alpa_explore: please report it with the details below.",
        detail="".join(traceback.format_exception(error)),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Regrets:
    """What the other strategies of an operator would cost."""

    plan: Plan
    selection: str
    """Key of the operator."""
    rows: tuple[Regret, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class State:
    """A value; every change makes a new one."""

    settings: Settings
    plan: Plan | None = None
    """The last plan that worked."""
    planned: Settings | None = None
    """The settings that `plan` answers."""
    planning: bool = False
    """A full planner run is under way."""
    cancelling: bool = False
    """It was asked to stop and has not stopped yet."""
    replanning: bool = False
    """Another B or delta is being evaluated."""
    activity: str = ""
    """What the planner does, or what the last run came to, in words."""
    progress: Progress | None = None
    """Of the run under way; None before its first report and after its end."""
    problem: Problem | None = None
    """Of the last run; None after one that worked."""
    history: History = field(default_factory=History)
    """The plans that were shown; the one on screen is at its place."""
    comparison: Comparison | None = None
    """Of the formulations of a sharding problem, the last that was asked for."""
    regrets: Regrets | None = None
    """Of the operator that was asked about last."""
    run: TrainingRun | None = None
    """The last that was started."""
    run_check: RunCheck | None = None
    """Whether a plan can run, as it was asked last."""
    pinned: Plan | None = None
    """The plan that others are compared with."""
    selection: str = ""
    """Key of what is selected, in every figure and table (see `alpa_explore.figures.keys`); '' for nothing."""

    @property
    def out_of_date(self) -> bool:
        """True when the plan does not answer the settings, and what is under way will not change that."""
        if self.planned is None or self.planned == self.settings:
            return False
        return not (self.replanning and self.planned.needs_only_replan(self.settings))


Listener = Callable[[State, State], None]
"""Called with (old, new) after each change, under the store's lock, on the thread that made it."""


class Store:
    """The one mutable place of an explorer. Widget callbacks and planner threads meet at its lock."""

    def __init__(self, state: State) -> None:
        self.lock = threading.RLock()
        self._state = state
        self._listeners: list[Listener] = []

    @property
    def state(self) -> State:
        """The present state."""
        return self._state

    def listen(self, listener: Listener) -> None:
        """Call `listener` after every change from now on."""
        self._listeners.append(listener)

    def change(self, **changes: Any) -> None:
        """Replace fields of the state and tell the listeners; no change, no call."""
        with self.lock:
            old = self._state
            if not any(_differs(getattr(old, name), value) for name, value in changes.items()):
                return
            self._state = new = replace(old, **changes)
            for listener in self._listeners:
                listener(old, new)


def _differs(old: object, new: object) -> bool:
    # A plan is compared by identity: by value it would walk through thousands of stage costs.
    return old is not new and (type(old) is not type(new) or hasattr(new, "costs") or old != new)
