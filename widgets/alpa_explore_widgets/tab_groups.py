"""The tabs of the explorer, in the order in which one asks: does it fit, how is it laid out, why, how does it run, what
else.

A new panel is one line here, and its lesson in `lessons.toml` where it explains a step of the algorithm.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any

from alpa_explore.baselines.kinds import KINDS
from alpa_explore.planner.microbatches import microbatches_from_costs, tried
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import TriedMicrobatches
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.background import NewestWins
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel
from alpa_explore_widgets.tab_kinds.panel import Panel, Tab, same
from alpa_explore_widgets.tabs.accuracy import AccuracyPanel
from alpa_explore_widgets.tabs.history import ComparePanel, SearchPanel
from alpa_explore_widgets.tabs.layouts.fit_scale import FitScalePanel
from alpa_explore_widgets.tabs.layouts.layouts import LayoutsPanel
from alpa_explore_widgets.tabs.of_plan import FrontierPanel, OverviewPanel, ShardingPanel, TimelinePanel
from alpa_explore_widgets.tabs.run import RunPanel
from alpa_explore_widgets.tabs.why import WhyPanel


class LayersPanel(PlanPanel):
    """Which operators make up each layer, and what crosses each cut?"""

    title, name = "Layers", "layers"
    question = (
        "Which operators make up each layer, how much does each compute, and how many bytes cross the cut after it?"
    )

    of_plan = False  # another B with the same stages leaves it as it is

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The layers and the stages that hold them."""
        plan = self.plan_of(state)
        stages = tuple((stage.layers, stage.devices) for stage in plan.stages)
        return (plan.layers, stages, plan.options.delta, plan.model.name, str(plan.cluster))


class MicrobatchesPanel(PlanPanel):
    """What would more or fewer microbatches change?"""

    title, name = "Microbatches", "microbatches"
    made_ahead = True
    room = "comparisons"
    question = "What would more or fewer microbatches change: T, the throughput, and the memory of a device?"

    def __init__(self) -> None:
        self._others: tuple[TriedMicrobatches, ...] = ()
        """Rows of other B, the same for every B; of a large model the pipelines take seconds."""
        self._of: tuple[object, ...] = ()
        """What they follow from."""
        self._known = Event()
        self._worker: NewestWins[Plan] = NewestWins(self._find, "alpa-explore microbatches")
        super().__init__()

    def follow(self, state: State) -> None:
        """Look for the rows of other B, unless they are known; those that take a moment are drawn at once."""
        plan = self.plan_of(state)
        of = (plan.costs, plan.cluster, replace(plan.options, num_microbatches=1), plan.microbatches)
        if same(of, self._of):
            return
        self._of, self._others = of, plan.microbatches
        if not plan.microbatches:
            self._known.clear()
            self._worker.submit(plan)
            self._known.wait(tuning.MOMENT_SECONDS)

    def _find(self, plan: Plan, cancel: Event) -> None:
        found = microbatches_from_costs(plan)
        if not cancel.is_set():
            self._others = found
            self._known.set()
            self.redraw()
            self.figure.busy = False

    def busy(self, state: State) -> bool:
        """While the rows are looked for, too."""
        return super().busy(state) or not self._others

    def depends_on(self, _state: State) -> tuple[object, ...]:
        """The rows of other B."""
        return (self._others,)

    def arguments(self, state: State) -> dict[str, Any]:
        """The rows: that of the plan among the others."""
        plan = self.plan_of(state)
        rows = {row.num_microbatches: row for row in self._others} | {plan.options.num_microbatches: tried(plan)}
        return {"rows": plan.microbatches or tuple(rows[b] for b in sorted(rows))}


def _figure_alone(title: str, name: str, question: str) -> tuple[type[Panel], tuple[Any, ...]]:
    """A tab with a figure of a plan that needs nothing else."""
    texts = {"title": title, "name": name, "question": question, "made_ahead": True}
    return type(f"{title}Panel", (PlanPanel,), texts), ()


def tabs_of(session: Session, go_to: Callable[[str], None]) -> tuple[Tab, ...]:
    """The tabs in their order. `go_to` selects the tab of a title."""
    tabs: tuple[tuple[type[Panel], tuple[Any, ...]], ...] = (
        (OverviewPanel, (go_to,)),
        (FitScalePanel, (session,)),
        (LayoutsPanel, (session,)),
        (WhyPanel, (session,)),
        (LayersPanel, ()),
        _figure_alone("Cluster", "cluster", "Which devices run which stage, and how full is their memory?"),
        _figure_alone(
            *("t_max", "t_max"),
            "How slow may the slowest stage be? Each t_max gives T = Σt + (B − 1) · t_max; the plan has the least T.",
        ),
        (TimelinePanel, ()),
        (ShardingPanel, (session,)),
        (FrontierPanel, (session.select,)),
        (RunPanel, (session.runs, session.attaching, session.profiling, session.plan_for_attached, session.show_plan)),
        (SearchPanel, (lambda: session.try_levers(free=True), lambda: session.try_baselines(tuple(KINDS)))),
        (ComparePanel, (session.layouts.ask_layouts,)),
        (MicrobatchesPanel, ()),
        _figure_alone(
            *("Costs", "stage_costs"),
            "How long would any range of layers take on any submesh, and which of them does the plan use?",
        ),
        (AccuracyPanel, ()),
    )
    return tuple(Tab(kind=kind, make=partial(kind, *given)) for kind, given in tabs)
