"""The Sharding tab, with its choice of a stage and the spec constraints for the selected operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ipywidgets as W

from alpa_explore.figures.keys import read_key
from alpa_explore_widgets.panels.spec_constraints import ConstraintControls
from alpa_explore_widgets.session.session import Session
from alpa_explore_widgets.tab_kinds.stage_panel import StagePanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan
    from alpa_explore_widgets.session.state import State

AROUND = 12
"""Operators before and behind the selected one."""


class ShardingPanel(StagePanel):
    """How is every operator of a stage divided over the axes of its logical mesh?"""

    title, name = "Sharding", "sharding"
    question = "How is each operator of a stage divided over the mesh, and what does it cost to bring its inputs there?"

    def __init__(self, session: Session) -> None:
        self.spec_constraints = ConstraintControls(session)
        super().__init__(session.select)

    def below(self) -> list[W.Widget]:
        """Spec constraints for the selected operator."""
        return [self.spec_constraints.widget]

    def follow(self, state: State) -> None:
        """See the module."""
        super().follow(state)
        self.spec_constraints.show(state)

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The stage, and the selected operator where a figure of the whole stage would not show it."""
        assert state.plan is not None, "shown before there was a plan"
        return (*super().depends_on(state), self._start(state.plan, state.selection))

    def draw(self, state: State, theme: str) -> go.Figure:
        """The stage, or what is around the selected operator."""
        assert state.plan is not None, "shown before there was a plan"
        start = self._start(state.plan, state.selection)
        more = {} if start is None else {"start": start, "count": 2 * AROUND + 1}
        figure: go.Figure = self._of("figure")(state.plan, stage=self.stage_of_rows(), theme=theme, **more)
        return figure

    def _start(self, plan: Plan, selection: str) -> int | None:
        name = read_key(selection).get("operator")
        if name is None:
            return None
        from alpa_explore.figures.decisions.operator_rows import operator_page

        stage = plan.stages[self.stage_of_rows()]
        if name in {row.operator.name for row in operator_page(stage, count=48).rows}:
            return None
        place = next((i for i, o in enumerate(stage.operators) if o.name == name), None)
        return None if place is None else max(0, place - AROUND)
