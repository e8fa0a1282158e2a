"""What is selected, in words, with a button that clears it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import ipywidgets as W

from alpa_explore import units
from alpa_explore.figures.keys import read_key
from alpa_explore.plans.text import layers_phrase, printable

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan, PlanOperator
    from alpa_explore_widgets.state import State


class SelectedPanel:
    """One line above the tabs; nothing when nothing is selected."""

    def __init__(self) -> None:
        self.widget = W.HTML()
        self._shown: tuple[Plan | None, str] | None = None

    def show(self, state: State) -> None:
        """Bring the line to the state."""
        if self._shown is None or self._shown[0] is not state.plan or self._shown[1] != state.selection:
            self._shown = (state.plan, state.selection)
            self.widget.value = "" if state.plan is None else selected_html(state.plan, state.selection)


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
