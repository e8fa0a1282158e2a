"""The state of an explorer as one immutable value, and the store that holds the present one. No widgets here.

Its parts: an error as it is shown, with offers what to do; attached hosts, timed kernels; how to run a plan, whether it
can run, the progress of a run; the answers to questions.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from alpa_explore.cluster import Cluster
from alpa_explore.errors import AlpaExploreError
from alpa_explore.execution.progress import Progress
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import NoPlan
from alpa_explore_widgets.session.history import History
from alpa_explore_widgets.session.settings import Settings

if TYPE_CHECKING:
    from alpa_explore.attached.attach import Attached
    from alpa_explore.calibration.profiling.profile import Profile
    from alpa_explore.questions.better_plan import BetterPlan
    from alpa_explore.questions.what_if import Regret
    from alpa_explore.runtime.attempts import Retry
    from alpa_explore.runtime.drift import Drift
    from alpa_explore.runtime.measured import Measured
    from alpa_explore.runtime.reports import StepReport
    from alpa_explore.uniform_layouts.measured import MeasuredLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why there is no new plan, or why a training run failed, in words for the user."""

    what: str
    found: str
    remedy: str
    detail: str = ""
    """The traceback of an unexpected exception, or the end of the log of a failed run."""
    setting: str = ""
    """The setting that is at fault; '' if it is not one."""


def fault_of(error: Exception, unexpected: str = "The planner failed") -> Fault:
    """The fault for an exception. Anything but an AlpaExploreError is a bug of alpa_explore: `unexpected` says what
    failed, and the traceback is the detail."""
    if isinstance(error, AlpaExploreError):
        remedy, _, log = error.remedy.partition("\n")
        return Fault(what=error.what, found=error.found, remedy=remedy, detail=log, setting=error.option)
    return Fault(
        what=unexpected,
        found=f"{type(error).__name__}: {error}",
        remedy="This is a fault of alpa_explore: please report it with the details below.",
        detail="".join(traceback.format_exception(error)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A change of settings with which the model fits."""

    found: str
    """What was found: 'Needs 16 × v100: 2 nodes of 8'."""
    button: str
    """'Plan on 2 × 8'."""
    changes: tuple[tuple[str, Any], ...]
    """(setting, value)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """The offers so far."""

    offers: tuple[Offer, ...] = ()
    at_least: str = ""
    """A cluster that is needed at least, where none was found that fits."""
    searching: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Where and how to run a plan."""

    target: str = "local"
    """One of `TARGETS` (`alpa_explore.runtime.targets.target`)."""
    device: str = ""
    """'cpu', 'cuda', or '' for GPUs if there are any and CPUs otherwise."""
    steps: int = 20
    scheduler: str = ""
    """Address of a Dask scheduler, for the target dask."""
    checkpoint_every: int | None = None
    """Number of steps after which the state is kept; None for never."""
    retries: int = 0
    """How often the run goes on from its last checkpoint after the loss of a process, host or link."""
    resume: str = ""
    """Folder of a run or a checkpoint from which to go on; '' to begin anew."""

    @property
    def check_is_remote(self) -> bool:
        """Whether a check contacts another process, which may take seconds; such a check is not made automatically."""
        return self.target == "dask" and bool(self.scheduler)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunCheck:
    """Whether a plan can run with these settings."""

    plan: Plan
    settings: RunSettings
    fault: Fault | None = None
    """Why it cannot run."""
    program: dict[str, Any] | None = None
    """The result of a dry run: a description of the program that would run."""
    busy: bool = False
    """The check is still under way."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attachment:
    """The hosts of a Dask scheduler, as far as they are known."""

    address: str
    """As the user typed it."""
    nodes: Attached | None = None
    """The hosts, and their links once these are measured; None before they are found."""
    cluster: Cluster | None = None
    """Made of the hosts; None while they are attached, and where the planner cannot plan for them."""
    remarks: tuple[str, ...] = ()
    """What was assumed for the cluster."""
    progress: Progress | None = None
    """Of the measurement of links."""
    fault: Fault | None = None
    """Why there are no hosts, or no cluster of them."""
    busy: bool = True
    cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelTimes:
    """What is known of the kernels of a plan."""

    plan: Plan
    """With the kernels that were known before."""
    scheduler: str
    """Of the attached hosts; '' where this machine measures."""
    seconds: float
    """How long to measure."""
    done: int = 0
    kernels: int = 0
    share: float = 0.0
    """Of the plan's kernel time, timed."""
    found: Profile | None = None
    fault: Fault | None = None
    busy: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingRun:
    """A training run of a plan and its progress."""

    plan: Plan
    settings: RunSettings
    trains_user_module: bool
    """Whether it trains a module of the notebook, on its example inputs."""
    state: str = "preparing"
    """As `RunProgress.state` of the runtime."""
    stopping: bool = False
    predicted_seconds: float = 0.0
    """Simulated seconds of one step."""
    steps: tuple[StepReport, ...] = ()
    """The finished steps; of a resumed run those since its checkpoint."""
    first_step: int = 0
    """The step of the checkpoint from which it went on; 0 where it began anew."""
    kept_step: int = 0
    """The step of its last whole checkpoint; 0 while there is none."""
    retries: tuple[Retry, ...] = ()
    """The failures after which it went on."""
    passed_over: tuple[str, ...] = ()
    """Damaged checkpoints, in whose place an older one was taken: what is wrong with each."""
    folder: Path | None = None
    measured: Measured | None = None
    """The measured times, once the run is done."""
    fault: Fault | None = None
    """Why it failed."""
    drift: Drift | None = None
    """What runs otherwise than predicted, as far as it was measured."""
    better: BetterPlan | None = None
    """The best plan with the measured figures; None until it is known."""
    changing: bool = False
    """A checkpoint was asked for, after which the run goes on under the better plan."""
    changed_at: int = 0
    """The step with which this plan took over; 0 where the run began with it."""

    @property
    def can_change(self) -> bool:
        """Whether a better plan is known and the run can go on under it."""
        better = self.better
        offered = better is not None and better.best is not better.present
        return offered and self.state == "running" and not self.stopping and not self.changing

    @property
    def can_resume(self) -> bool:
        """Whether it ended early and left a checkpoint."""
        return self.state in ("failed", "stopped") and self.kept_step > 0 and self.folder is not None

    @property
    def finished(self) -> bool:
        """Whether the run has ended, for whatever reason."""
        return self.state not in ("preparing", "running")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Regrets:
    """The cost of the other strategies of an operator."""

    plan: Plan
    selection: str
    """Key of the operator."""
    rows: tuple[Regret, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutQuestion:
    """What decides on the layouts of a model."""

    model: str
    nodes: int
    devices_per_node: int
    device: str
    figures: tuple[float | None, ...]
    """Those of the device that the user changed."""
    global_batch: int
    sequence: int | None
    precision: str | None

    @property
    def words(self) -> str:
        """'llama-3-8b on 1x8:h100, global batch 128'."""
        where = f"{self.nodes}x{self.devices_per_node}:{self.device}"
        return f"{self.model} on {where}, global batch {self.global_batch:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingQuestion:
    """What decides on the best layouts on other clusters; prices do not."""

    model: str
    devices: tuple[str, ...]
    nodes: tuple[int, ...]
    devices_per_node: int | None
    global_batch: int
    sequence: int | None
    precision: str | None


Question = TypeVar("Question", LayoutQuestion, ScalingQuestion)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer(Generic[Question]):
    """The answer to the last question about layouts, or the part of it that is known."""

    question: Question
    found: Any = None
    """`Layouts`, or `Scaling`; None before any is known."""
    measured: tuple[MeasuredLayout, ...] = ()
    running: bool = False
    progress: Progress | None = None
    fault: Fault | None = None
    """Why there is no answer."""


@dataclass(frozen=True, kw_only=True, eq=False)
class State:
    """Everything that the explorer shows; every change makes a new value."""

    settings: Settings
    plan: Plan | None = None
    """The plan on screen: the last one that could be made."""
    plan_settings: Settings | None = None
    """The settings that `plan` was made with."""
    planning: bool = False
    """The whole planner is running."""
    aside: bool = False
    """What is planned is tried aside: the plan on screen stays."""
    cancelling: bool = False
    """The planner was asked to stop and has not stopped yet."""
    replanning: bool = False
    """A change of B, δ, schedule or mode is being evaluated."""
    activity: str = ""
    """What is under way, or the outcome of the last piece of work, in words."""
    progress: Progress | None = None
    """Progress of the planner; None before its first report and after its end."""
    compiling: bool = False
    """Kernels of the solvers are being compiled for the planner."""
    fault: Fault | None = None
    """Why the last piece of work failed; None after one that worked."""
    offers: Offers | None = None
    """What to change so that the model fits, after a fault for lack of memory."""
    history: History = field(default_factory=History)
    """The plans so far; the one on screen is at its position."""
    moving: bool = False
    """The last entry of the history may be a stop of a slider that still moves: the next replan replaces it."""
    no_plans: tuple[NoPlan, ...] = ()
    """Neighbours and baselines that were tried last and have no plan, with the reasons."""
    regrets: Regrets | None = None
    """The last computed costs of an operator's other strategies."""
    layouts: Answer[LayoutQuestion] | None = None
    """The uniform layouts that were asked for last; None before the first question."""
    scaling: Answer[ScalingQuestion] | None = None
    """The best of them on other clusters."""
    attachment: Attachment | None = None
    """The hosts that were attached last, or are being attached."""
    kernel_times: KernelTimes | None = None
    """The kernels that were timed last, or are being timed."""
    run: TrainingRun | None = None
    """The last training run that was started."""
    run_check: RunCheck | None = None
    """The last check whether a plan can run."""
    pinned: Plan | None = None
    """The plan that others are compared with."""
    selection: str = ""
    """Key of the selected stage, layer, operator or device, the same in every figure and table (see
    `alpa_explore.figures.keys`); '' for nothing."""

    @property
    def estimated(self) -> bool:
        """True when the plan on screen has the choices for other devices or links: its figures are an estimate."""
        return self.plan is not None and self.plan.basis is not None and self.plan.basis.cluster != self.plan.cluster

    @property
    def following(self) -> bool:
        """True when the planner runs for the settings of the controls."""
        return self.planning and not self.aside

    @property
    def out_of_date(self) -> bool:
        """True when the plan does not belong to the settings and no replan under way will change that."""
        if self.plan_settings is None or self.plan_settings == self.settings:
            return False
        return not (self.replanning and self.plan_settings.needs_only_replan(self.settings))


Listener = Callable[[State, State], None]
"""Called with (old, new) after each change, under the store's lock, on the thread that made the change."""


class StateStore:
    """Holds the present state. This is the one mutable place of an explorer: widget callbacks and planner threads
    synchronise on its lock."""

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
        """Replace fields of the state and call the listeners, unless every new value equals the old one."""
        with self.lock:
            old = self._state
            if not any(_differs(getattr(old, name), value) for name, value in changes.items()):
                return
            self._state = new = replace(old, **changes)
            for listener in self._listeners:
                listener(old, new)


def _differs(old: object, new: object) -> bool:
    # Plans are compared by identity: comparing them by value would walk through thousands of stage costs.
    return old is not new and (type(old) is not type(new) or hasattr(new, "costs") or old != new)
