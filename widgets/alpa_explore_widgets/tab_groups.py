"""The tabs of the explorer, in groups, in the order in which one asks: does it fit, how is it laid out, why, what else.

A new panel is one line here, and its lesson in `lessons.py` where it explains a step of the algorithm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alpa_explore.baselines.kinds import KINDS
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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from alpa_explore_widgets.session.session import Session
    from alpa_explore_widgets.tab_kinds.panel import Panel


def grouped_panels(session: Session, go_to: Callable[[str], None]) -> Mapping[str, tuple[Panel, ...]]:
    """Group -> its panels, both in the order of the tabs. Panels of one group are chosen in a second row of tabs.

    `go_to` selects the tab of a title.
    """
    return {
        "Overview": (OverviewPanel(go_to),),
        "Fit & scale": (FitScalePanel(session),),
        "Layouts": (LayoutsPanel(session),),
        "Pipeline": (
            LayersPanel(),
            ClusterPanel(),
            TimelinePanel(),
            TMaxPanel(),
            MicrobatchesPanel(),
        ),
        "Sharding": (ShardingPanel(session),),
        "Memory": (FrontierPanel(session.select),),
        "Why": (WhyPanel(session),),
        "Search & compare": (
            WhatIfsPanel(lambda position, on: session.keep(position, on=on)),
            SearchPanel(session.try_neighbours, lambda: session.try_baselines(KINDS)),
            ComparePanel(),
        ),
        "Run": (RunPanel(session.runs, session.attaching, session.plan_for_attached, session.show_plan),),
        "Details": (
            StageCostsPanel(),
            SolversPanel(session.compare_formulations, session.comparisons.cancel),
            AccuracyPanel(),
        ),
    }
