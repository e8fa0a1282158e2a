"""The tabs of the explorer, in groups, in the order in which one asks: does it fit, how is it laid out, why, what else.

A new panel is one line here, and its lesson in `lessons.py` where it explains a step of the algorithm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alpa_explore.baselines.kinds import KINDS
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

if TYPE_CHECKING:
    from collections.abc import Callable

    from alpa_explore_widgets.session.session import Session
    from alpa_explore_widgets.tab_kinds.panel import Panel


def tabs_of(session: Session, go_to: Callable[[str], None]) -> tuple[Tab, ...]:
    """The tabs in their order, with their groups. `go_to` selects the tab of a title."""
    return (
        _tab("Overview", OverviewPanel, go_to),
        _tab("Fit & scale", FitScalePanel, session),
        _tab("Layouts", LayoutsPanel, session),
        _tab("Pipeline", LayersPanel),
        _tab("Pipeline", ClusterPanel),
        _tab("Pipeline", TimelinePanel),
        _tab("Pipeline", TMaxPanel),
        _tab("Pipeline", MicrobatchesPanel),
        _tab("Sharding", ShardingPanel, session),
        _tab("Memory", FrontierPanel, session.select),
        _tab("Why", WhyPanel, session),
        _tab("Search & compare", WhatIfsPanel, lambda position, on: session.keep(position, on=on)),
        _tab("Search & compare", SearchPanel, session.try_neighbours, lambda: session.try_baselines(KINDS)),
        _tab("Search & compare", ComparePanel),
        _tab("Run", RunPanel, session.runs, session.attaching, session.plan_for_attached, session.show_plan),
        _tab("Details", StageCostsPanel),
        _tab("Details", SolversPanel, session.compare_formulations, session.comparisons.cancel),
        _tab("Details", AccuracyPanel),
    )


def _tab(group: str, kind: type[Panel], *given: Any) -> Tab:
    """A tab of a group; the panel is made with what is given."""
    return Tab(group=group, kind=kind, make=lambda: kind(*given))
