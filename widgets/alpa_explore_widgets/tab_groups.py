"""The tabs of the explorer, in the order in which one asks: does it fit, how is it laid out, why, how does it run, what
else.

A new panel is one line here, and its lesson in `lessons.py` where it explains a step of the algorithm.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from alpa_explore.baselines.kinds import KINDS
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel
from alpa_explore_widgets.tab_kinds.panel import Panel, Tab
from alpa_explore_widgets.tabs.accuracy import AccuracyPanel
from alpa_explore_widgets.tabs.compare import ComparePanel
from alpa_explore_widgets.tabs.frontier import FrontierPanel
from alpa_explore_widgets.tabs.layouts.fit_scale import FitScalePanel
from alpa_explore_widgets.tabs.layouts.layouts import LayoutsPanel
from alpa_explore_widgets.tabs.overview import OverviewPanel
from alpa_explore_widgets.tabs.run import RunPanel
from alpa_explore_widgets.tabs.search import SearchPanel
from alpa_explore_widgets.tabs.sharding import ShardingPanel
from alpa_explore_widgets.tabs.solvers import SolversPanel
from alpa_explore_widgets.tabs.timeline import TimelinePanel
from alpa_explore_widgets.tabs.what_ifs import WhatIfsPanel
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


class ClusterPanel(PlanPanel):
    """Which devices run which stage, and how full is their memory?"""

    title, name = "Cluster", "cluster"
    made_ahead = True
    question = "Which devices run which stage, and how full is their memory?"


class StageCostsPanel(PlanPanel):
    """How long would any range of layers take on any submesh?"""

    title, name = "Costs", "stage_costs"
    made_ahead = True
    question = "How long would any range of layers take on any submesh, and which of them does the plan use?"


class TMaxPanel(PlanPanel):
    """How slow may the slowest stage be?"""

    title, name = "t_max", "t_max"
    made_ahead = True
    question = "How slow may the slowest stage be? Each t_max gives T = Σt + (B − 1) · t_max; the plan has the least T."


class MicrobatchesPanel(PlanPanel):
    """What would more or fewer microbatches change?"""

    title, name = "Microbatches", "microbatches"
    made_ahead = True
    room = "comparisons"
    question = "What would more or fewer microbatches change: T, the throughput, and the memory of a device?"


def tabs_of(session: Session, go_to: Callable[[str], None]) -> tuple[Tab, ...]:
    """The tabs in their order. `go_to` selects the tab of a title."""
    tabs: tuple[tuple[type[Panel], tuple[Any, ...]], ...] = (
        (OverviewPanel, (go_to,)),
        (FitScalePanel, (session,)),
        (LayoutsPanel, (session,)),
        (WhyPanel, (session,)),
        (LayersPanel, ()),
        (ClusterPanel, ()),
        (TMaxPanel, ()),
        (TimelinePanel, ()),
        (ShardingPanel, (session,)),
        (FrontierPanel, (session.select,)),
        (RunPanel, (session.runs, session.attaching, session.profiling, session.plan_for_attached, session.show_plan)),
        (WhatIfsPanel, (lambda position, on: session.keep(position, on=on),)),
        (SearchPanel, (lambda: session.try_levers(free=True), lambda: session.try_baselines(KINDS))),
        (ComparePanel, ()),
        (MicrobatchesPanel, ()),
        (StageCostsPanel, ()),
        (SolversPanel, (session.compare_formulations, session.comparisons.cancel)),
        (AccuracyPanel, ()),
    )
    return tuple(Tab(kind=kind, make=partial(kind, *given)) for kind, given in tabs)
