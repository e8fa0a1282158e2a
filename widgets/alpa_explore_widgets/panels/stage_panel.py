"""A tab about one stage, with its choice of the stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ipywidgets as W

from alpa_explore_widgets.fields import ChoiceField
from alpa_explore_widgets.headline import named_layers
from alpa_explore_widgets.panels.figure_panel import FigurePanel

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan


class StagePanel(FigurePanel):
    """Shows one stage; another choice draws it again."""

    def controls(self) -> list[W.Widget]:
        """The stage to look at."""
        self.stage = ChoiceField(
            label="Stage", hint="The stage that is shown.", choices=[["0", "stage 0", ""]], value="0"
        )
        self.stage.observe(self._stage_chosen, "value")
        return [self.stage]

    def chosen(self, plan: Plan) -> int:
        """The stage that is chosen, after the choices became those of `plan`."""
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
        return int(self.stage.value)

    def _stage_chosen(self, _change: dict[str, Any]) -> None:
        self.redraw()
