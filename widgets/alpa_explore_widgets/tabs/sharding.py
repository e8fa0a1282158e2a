"""The Sharding tab, with the spec constraints of the selected operator."""

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

CONTEXT_OPERATORS = 12
"""Operators shown before and after the selected one; set by hand."""
PAGE_OPERATORS = 48
"""Operators that the figure of a whole stage shows; set by hand."""


class ShardingPanel(StagePanel):
    """How is every operator of a stage sharded over the axes of its logical mesh?"""

    title, name = "Sharding", "sharding"
    question = "How is each operator of a stage divided over the devices, and what do its collectives cost?"

    def __init__(self, session: Session) -> None:
        self.spec_constraints = ConstraintControls(session)
        super().__init__(session.select)

    def controls(self) -> list[W.Widget]:
        """The choice of the stage; beside it the spec constraints of the selected operator, or how to get them."""
        self.hint = W.HTML('<p class="alpa-question">Click an operator to pin or forbid its spec.</p>')
        return [*super().controls(), self.hint, self.spec_constraints.widget]

    def follow(self, state: State) -> None:
        """Update the stage and the spec constraints."""
        super().follow(state)
        self.spec_constraints.show(state)
        self.hint.layout.display = None if self.spec_constraints.widget.layout.display == "none" else "none"

    def depends_on(self, state: State) -> tuple[object, ...]:
        """The stage, and the part of it that is shown."""
        assert state.plan is not None, "shown before there was a plan"
        return (*super().depends_on(state), self._start(state.plan, state.selection))

    def draw(self, state: State, theme: str) -> go.Figure:
        """The whole stage, or the operators around the selected one if that does not show it."""
        assert state.plan is not None, "shown before there was a plan"
        start = self._start(state.plan, state.selection)
        part = {} if start is None else {"start": start, "count": 2 * CONTEXT_OPERATORS + 1}
        figure: go.Figure = self._function("figure")(state.plan, stage=self.stage_of_rows(), theme=theme, **part)
        return figure

    def _start(self, plan: Plan, selection: str) -> int | None:
        """Index of the first operator to show; None for the figure of the whole stage."""
        name = read_key(selection).get("operator")
        if name is None:
            return None
        from alpa_explore.figures.decisions.operator_rows import operator_page

        stage = plan.stages[self.stage_of_rows()]
        if name in {row.operator.name for row in operator_page(stage, count=PAGE_OPERATORS).rows}:
            return None
        index = next((i for i, o in enumerate(stage.operators) if o.name == name), None)
        return None if index is None else max(0, index - CONTEXT_OPERATORS)
