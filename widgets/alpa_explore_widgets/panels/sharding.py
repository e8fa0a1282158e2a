"""The Sharding tab, with its choice of a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ipywidgets as W

from alpa_explore_widgets.fields import ChoiceField
from alpa_explore_widgets.headline import named_layers
from alpa_explore_widgets.panels.figure_panel import FigurePanel

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from alpa_explore.plans.plan import Plan


class ShardingPanel(FigurePanel):
    """How is every operator of a stage divided over the axes of its logical mesh?"""

    title = "Sharding"
    question = "How is each operator of a stage divided over the mesh, and what does it cost to bring its inputs there?"

    def controls(self) -> list[W.Widget]:
        """The stage to look at."""
        self.stage = ChoiceField(
            label="Stage", hint="The stage whose operators are shown.", choices=[["0", "stage 0", ""]], value="0"
        )
        self.stage.observe(self._stage_chosen, "value")
        return [self.stage]

    def draw(self, plan: Plan, theme: str) -> go.Figure:
        """See `alpa_explore.figures.sharding`."""
        from alpa_explore.figures.sharding import sharding_figure

        with self.stage.hold_sync():
            self.stage.choices = [
                [
                    str(s.index),
                    f"{s.index}: {named_layers(s.layers)} on {'×'.join(map(str, s.logical_mesh))}",
                    "",
                ]
                for s in plan.stages
            ]
            if int(self.stage.value) >= len(plan.stages):
                self.stage.value = str(len(plan.stages) - 1)
        return sharding_figure(plan, stage=int(self.stage.value), theme=theme)

    def _stage_chosen(self, _change: dict[str, Any]) -> None:
        self.redraw()
