"""A tab about one stage, with its choice of the stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ipywidgets as W

from alpa_explore.figures.keys import key, read_key
from alpa_explore_widgets.elements.fields import ChoiceField
from alpa_explore_widgets.panels.headline import named_layers
from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel

if TYPE_CHECKING:
    from collections.abc import Sequence

    import plotly.graph_objects as go

    from alpa_explore.plans.report.tables import Row
    from alpa_explore_widgets.session.state import State


class StagePanel(PlanPanel):
    """Shows the selected stage; the choice of another one here selects it everywhere."""

    def __init__(self, select: Callable[[str], None]) -> None:
        self._select = select
        super().__init__()

    def controls(self) -> list[W.Widget]:
        """The stage to look at."""
        self.stage = ChoiceField(
            label="Stage",
            hint="The stage that is shown; it is selected in all figures.",
            choices=[["0", "stage 0", ""]],
            value="0",
        )
        self.stage.observe(self._stage_chosen, "value")
        return [self.stage]

    def follow(self, state: State) -> None:
        """The choices are those of the plan, the choice is the selected stage."""
        assert state.plan is not None, "shown before there was a plan"
        stages = state.plan.stages
        wanted = read_key(state.selection).get("stage", self.stage.value)
        with self.stage.hold_sync():
            self.stage.choices = [
                [str(s.index), f"{s.index}: {named_layers(s.layers)} on {'×'.join(map(str, s.logical_mesh))}", ""]
                for s in stages
            ]
            self.stage.unobserve(self._stage_chosen, "value")  # it is being drawn already
            self.stage.value = wanted if int(wanted) < len(stages) else str(len(stages) - 1)
            self.stage.observe(self._stage_chosen, "value")

    def depends_on(self, _state: State) -> tuple[object, ...]:
        """The stage."""
        return (self.stage.value,)

    def stage_of_rows(self) -> int:
        """The stage that is shown."""
        return int(self.stage.value)

    def draw(self, state: State, theme: str) -> go.Figure:
        """See the module."""
        figure: go.Figure = self._of("figure")(state.plan, stage=self.stage_of_rows(), theme=theme)
        return figure

    def rows(self, state: State) -> Sequence[Row]:
        """See the module."""
        found: Sequence[Row] = self._of("table")(state.plan, stage=self.stage_of_rows())
        return found

    def _stage_chosen(self, change: dict[str, Any]) -> None:
        self._select(key(stage=int(change["new"])))
