"""The state of an explorer as one immutable value, and the store that holds the present one. No widgets here."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from alpa_explore.execution.progress import Progress
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.compare import NoPlan
from alpa_explore_widgets.session.fault import Fault, Offers
from alpa_explore_widgets.session.history import History
from alpa_explore_widgets.session.settings import Settings
from alpa_explore_widgets.session.training_run import Attachment, KernelTimes, RunCheck, TrainingRun

if TYPE_CHECKING:
    from alpa_explore.questions.what_if import Regret
    from alpa_explore.uniform_layouts.measured import MeasuredLayout


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
