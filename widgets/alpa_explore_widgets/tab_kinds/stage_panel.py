"""The base class of the tabs about one stage."""

from collections.abc import Callable
from typing import Any

import ipywidgets as W

from alpa_explore.figures.keys import key, read_key
from alpa_explore.plans.phrases import logical_mesh_phrase, stage_phrase
from alpa_explore_widgets.elements.fields import ChoiceField
from alpa_explore_widgets.session.state import State
from alpa_explore_widgets.tab_kinds.figure_panel import PlanPanel


class StagePanel(PlanPanel):
    """Shows the selected stage; choosing another one here selects it in every tab."""

    def __init__(self, select: Callable[[str], None]) -> None:
        self._select = select
        super().__init__()

    def controls(self) -> list[W.Widget]:
        """The choice of the stage."""
        self.stage = ChoiceField(
            label="Stage",
            hint="The stage that this figure shows. It becomes the selected stage in all tabs.",
            choices=[["0", "stage 0", ""]],
            value="0",
        )
        self.stage.observe(self._stage_chosen, "value")
        return [self.stage]

    def follow(self, state: State) -> None:
        """Offer the stages of the plan, and choose the selected one."""
        assert state.plan is not None, "shown before there was a plan"
        stages = state.plan.stages
        selected = read_key(state.selection).get("stage", self.stage.value)
        with self.stage.hold_sync():
            self.stage.choices = [
                [str(s.index), f"{stage_phrase(s)} ({logical_mesh_phrase(s.logical_mesh)})", ""] for s in stages
            ]
            with self.quietly(self.stage, self._stage_chosen):
                self.stage.value = selected if int(selected) < len(stages) else str(len(stages) - 1)

    def depends_on(self, _state: State) -> tuple[object, ...]:
        """The stage."""
        return (self.stage.value,)

    def stage_of_rows(self) -> int:
        """The stage that is shown."""
        return int(self.stage.value)

    def arguments(self, _state: State) -> dict[str, Any]:
        """The stage."""
        return {"stage": self.stage_of_rows()}

    def _stage_chosen(self, change: dict[str, Any]) -> None:
        self._select(key(stage=int(change["new"])))
