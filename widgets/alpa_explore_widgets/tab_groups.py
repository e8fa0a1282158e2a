"""The tabs of the explorer, in the order in which one asks: does it fit, how is it laid out, why, how does it run, what
else.

A new panel is one line here, and its lesson in `lessons.py` where it explains a step of the algorithm.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from alpa_explore.baselines.kinds import KINDS
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.tab_kinds.panel import Panel
from alpa_explore_widgets.tab_kinds.panel_list import Tab
from alpa_explore_widgets.tabs.accuracy import AccuracyPanel
from alpa_explore_widgets.tabs.compare import ComparePanel
from alpa_explore_widgets.tabs.frontier import FrontierPanel
from alpa_explore_widgets.tabs.layouts.fit_scale import FitScalePanel
from alpa_explore_widgets.tabs.layouts.layouts import LayoutsPanel
from alpa_explore_widgets.tabs.overview import OverviewPanel
from alpa_explore_widgets.tabs.plan_figures import (
    ClusterPanel,
    LayersPanel,
    MicrobatchesPanel,
    StageCostsPanel,
    TMaxPanel,
)
from alpa_explore_widgets.tabs.run import RunPanel
from alpa_explore_widgets.tabs.search import SearchPanel
from alpa_explore_widgets.tabs.sharding import ShardingPanel
from alpa_explore_widgets.tabs.solvers import SolversPanel
from alpa_explore_widgets.tabs.timeline import TimelinePanel
from alpa_explore_widgets.tabs.what_ifs import WhatIfsPanel
from alpa_explore_widgets.tabs.why import WhyPanel


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
        (RunPanel, (session.runs, session.attaching, session.plan_for_attached, session.show_plan)),
        (WhatIfsPanel, (lambda position, on: session.keep(position, on=on),)),
        (SearchPanel, (lambda: session.try_levers(free=True), lambda: session.try_baselines(KINDS))),
        (ComparePanel, ()),
        (MicrobatchesPanel, ()),
        (StageCostsPanel, ()),
        (SolversPanel, (session.compare_formulations, session.comparisons.cancel)),
        (AccuracyPanel, ()),
    )
    return tuple(Tab(kind=kind, make=partial(kind, *given)) for kind, given in tabs)
