"""What is selected, in words, with a button that clears it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

import ipywidgets as W

from alpa_explore import units
from alpa_explore.figures.keys import read_key
from alpa_explore.plans.printable import printable
from alpa_explore.plans.report.text import layers_phrase
from alpa_explore_widgets.elements.fields import Button
from alpa_explore_widgets.elements.tables import table_html

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan
    from alpa_explore.plans.records import PlanOperator
    from alpa_explore.plans.report.tables import Row
    from alpa_explore.questions.what_if import Regret
    from alpa_explore_widgets.session.state import State


class SelectedPanel:
    """One line above the tabs; nothing when nothing is selected. Of an operator the other strategies, when asked."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self.line, self.table = W.HTML(), W.HTML()
        self.ask = Button(
            ask,
            description="Other strategies",
            hint="What would the stage take if this operator were divided otherwise?",
        )
        self.ask.add_class("alpa-plain")
        self.widget = W.VBox([W.HBox([self.line, self.ask]), self.table])
        self.widget.children[0].add_class("alpa-panel-head")
        self.widget.layout.display = "none"
        self._shown: tuple[object, ...] = ()

    def show(self, state: State) -> None:
        """Bring the line to the state."""
        shown = (state.plan, state.selection, state.regrets)
        if [id(s) for s in shown] == [id(s) for s in self._shown]:
            return
        self._shown = shown
        plan, regrets = state.plan, state.regrets
        self.line.value = "" if plan is None else selected_html(plan, state.selection)
        self.widget.layout.display = None if state.selection else "none"
        known = plan is not None and plan.details is not None
        self.ask.layout.display = None if known and "operator" in read_key(state.selection) else "none"
        mine = regrets is not None and regrets.plan is plan and regrets.selection == state.selection
        self.table.value = regrets_html(regrets.rows, plan) if mine and regrets and plan else ""


def selected_html(plan: Plan, selection: str) -> str:
    """The line for a selection; '' for none."""
    parts = read_key(selection)
    if not parts:
        return ""
    words = "; ".join(_words(plan, parts))
    return (
        f'<p class="alpa-selected" role="status"><b>Selected:</b> {escape(words)} '
        '<button type="button" data-alpa-key="" title="Escape does the same">clear</button></p>'
    )


def regrets_html(rows: Sequence[Regret], plan: Plan) -> str:
    """The strategies of an operator, the cheapest first."""
    listed: list[Row] = [
        {
            "strategy": r.strategy,
            "inputs": r.inputs,
            "output": r.output,
            "chosen": r.chosen,
            "extra_seconds": None if r.extra_seconds == float("inf") else r.extra_seconds,
        }
        for r in rows
    ]
    return table_html(listed, plan)


def _words(plan: Plan, parts: dict[str, str]) -> list[str]:
    found = []
    stage = plan.stages[int(parts["stage"])] if "stage" in parts else None
    if "operator" in parts and stage is not None:
        operator = next((o for o in stage.operators if o.name == parts["operator"]), None)
        found.append(f"operator {printable(parts['operator'])}" if operator is None else _operator(operator))
    if "device" in parts:
        node, number = divmod(int(parts["device"]), plan.cluster.devices_per_node)
        found.append(f"device {parts['device']} (number {number} of node {node})")
    if "layer" in parts:
        layer = plan.layers[int(parts["layer"])]
        found.append(
            f"layer {layer.index} ({len(layer.operators)} operators, {units.flops(layer.flops)}, "
            f"{units.bytes_(layer.cut_bytes)} leave it)"
        )
    if stage is not None:
        found.append(
            f"stage {stage.index} ({layers_phrase(stage.layers)} on {'×'.join(map(str, stage.submesh))}, "
            f"{units.seconds(stage.latency_seconds)} a microbatch, {units.bytes_(stage.peak_bytes)} a device)"
        )
    return found


def _operator(o: PlanOperator) -> str:
    moved = f", then moves data for {units.seconds(o.communication_seconds)}" if o.communication_seconds else ""
    return (
        f"operator {printable(o.name)} ({printable(o.op)}, {o.phase}): strategy {printable(o.strategy)}, reads "
        f"{printable(', '.join(o.inputs)) or 'nothing'}, makes {printable(', '.join(o.outputs)) or 'nothing'}, "
        f"{units.seconds(o.compute_seconds)} of computing{moved}"
    )
