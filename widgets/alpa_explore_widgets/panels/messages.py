"""Messages above the tabs; the selection in words, with a button that clears it, and for an operator a table of its
other strategies on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING

import ipywidgets as W

from alpa_explore import units
from alpa_explore.figures.keys import read_key
from alpa_explore.plans.phrases import logical_mesh_phrase, stage_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.records import PlanOperator
from alpa_explore.plans.report.error_bands import bytes_with_band, time_with_band
from alpa_explore.plans.report.tables import Row
from alpa_explore.plans.report.text import recomputed_words
from alpa_explore.units import printable
from alpa_explore_widgets.elements.fields import Button, plain_button
from alpa_explore_widgets.elements.page_widget import box
from alpa_explore_widgets.elements.tables import table_html
from alpa_explore_widgets.session.state import Fault, Offer, Offers, State

if TYPE_CHECKING:
    from alpa_explore.questions.what_if import Regret

_COMPUTE, _HIDE = "Other strategies", "Hide strategies"


class SelectedPanel:
    """In place of the sentence about the plan, so that a selection moves nothing; hidden while nothing is selected. The
    table hangs below it, over the rest of the page."""

    def __init__(self, compute_regrets: Callable[[], None]) -> None:
        self._compute_regrets = compute_regrets
        self.line, self.table = W.HTML(), W.HTML()
        hint = "Compute how long the stage would take with each other strategy of this operator"
        self.regrets_button = plain_button(_COMPUTE, hint, self._pressed)
        self.table.add_class("alpa-strategies")
        self.widget = box("alpa-selection", self.line, self.regrets_button, self.table, kind=W.Box)
        self.widget.layout.display = "none"
        self._shown: tuple[object, ...] = ()
        self._show_table()

    def show(self, state: State) -> None:
        """Update the line."""
        inputs = (state.plan, state.selection, state.regrets)
        if [id(value) for value in inputs] == [id(value) for value in self._shown]:
            return
        self._shown = inputs
        plan, regrets = state.plan, state.regrets
        self.line.value = "" if plan is None else selected_html(plan, state.selection)
        self.widget.layout.display = None if state.selection else "none"
        has_model = plan is not None and plan.details is not None
        can_compute = has_model and "operator" in read_key(state.selection)
        self.regrets_button.layout.display = None if can_compute else "none"
        is_current = regrets is not None and regrets.plan is plan and regrets.selection == state.selection
        self.table.value = regrets_html(regrets.rows, plan) if is_current and regrets and plan else ""
        self._show_table()

    def _pressed(self) -> None:
        """Show the table, or hide it again."""
        if self.table.layout.display != "none":
            self.table.layout.display, self.regrets_button.description = "none", _COMPUTE
        elif self.table.value:
            self._show_table()
        else:
            self._compute_regrets()

    def _show_table(self) -> None:
        self.table.layout.display = None if self.table.value else "none"
        self.regrets_button.description = _HIDE if self.table.value else _COMPUTE


def selected_html(plan: Plan, selection: str) -> str:
    """The line for a selection; '' for none."""
    parts = read_key(selection)
    if not parts:
        return ""
    description = escape("; ".join(_descriptions(plan, parts)))
    return (
        f'<div class="alpa-selected" role="status"><p title="{description}"><b>Selected:</b> {description}</p>'
        '<button type="button" data-alpa-key="" title="Escape does the same">clear</button></div>'
    )


def regrets_html(rows: Sequence[Regret], plan: Plan) -> str:
    """The strategies of an operator, the cheapest first."""
    table: list[Row] = [
        {
            "strategy": regret.strategy,
            "reads": regret.inputs,
            "writes": regret.output,
            "in_the_plan": regret.chosen,
            "stage_slower_by_seconds": "not possible" if regret.extra_seconds == float("inf") else regret.extra_seconds,
        }
        for regret in rows
    ]
    return table_html(table, plan)


def _descriptions(plan: Plan, parts: dict[str, str]) -> list[str]:
    """One phrase for each thing that a key names, the smallest first; around an operator the others are only named."""
    phrases = []
    stage = plan.stages[int(parts["stage"])] if "stage" in parts else None
    if "operator" in parts and stage is not None:
        operator = next((o for o in stage.operators if o.name == parts["operator"]), None)
        named = f"operator {printable(parts['operator'])}" if operator is None else _operator(operator)
        of_layer = f" of layer {parts['layer']}" if "layer" in parts else ""
        return [f"{named}{of_layer} in stage {stage.index}"]
    if "device" in parts:
        node, number = divmod(int(parts["device"]), plan.cluster.devices_per_node)
        phrases.append(f"device {parts['device']} (number {number} of node {node})")
    if "layer" in parts:
        layer = plan.layers[int(parts["layer"])]
        phrases.append(
            f"layer {layer.index} ({len(layer.operators):,} forward operators, {units.flops(layer.flops)}, "
            f"{units.bytes_(layer.cut_bytes)} cross the cut after it)"
        )
    if stage is not None:
        phrases.append(
            f"{stage_phrase(stage)} ({logical_mesh_phrase(stage.logical_mesh)}, "
            f"{time_with_band(plan, stage.latency_seconds)} per microbatch, {bytes_with_band(plan, stage.peak_bytes)} "
            f"per device{f', recomputes {words}' if (words := recomputed_words(stage)) else ''})"
        )
    return phrases


def _operator(operator: PlanOperator) -> str:
    moved_seconds = operator.communication_seconds
    collectives = f" + {units.seconds(moved_seconds)} collectives" if moved_seconds else ""
    return (
        f"operator {printable(operator.name)} ({printable(operator.op)}, {operator.phase}): strategy "
        f"{printable(operator.strategy)}, reads {printable(', '.join(operator.inputs)) or 'nothing'}, writes "
        f"{printable(', '.join(operator.outputs)) or 'nothing'}; {units.seconds(operator.compute_seconds)} compute"
        f"{collectives} per {'iteration' if operator.phase == 'update' else 'microbatch'}"
    )


class MessagesPanel:
    """The fault of the last piece of work, with a button for each change that was found to help; empty if there is
    none. `take` is called with the offer whose button is pressed."""

    def __init__(self, take: Callable[[Offer], None]) -> None:
        self._take = take
        self._shown: tuple[Offer, ...] = ()
        self.text, self.buttons = W.HTML(), box("alpa-buttons")
        self.buttons.layout.display = "none"
        self.widget = W.VBox([self.text, self.buttons])

    def show(self, state: State) -> None:
        """Update the message."""
        self.text.value = message_html(state)
        offers = state.offers.offers if state.offers is not None and state.fault is not None else ()
        if offers == self._shown:
            return
        self._shown = offers
        self.buttons.layout.display = "" if offers else "none"
        self.buttons.children = [
            Button(partial(self._take, offer), description=offer.button, hint=f"{offer.found}: set this and plan")
            for offer in offers
        ]


def message_html(state: State) -> str:
    """The fault in the state, or ''."""
    if state.fault is None:
        return ""
    last = "The figures show the last plan that worked." if state.plan is not None else ""
    return fault_html(state.fault, last, found=offers_text(state.offers))


def offers_text(offers: Offers | None) -> str:
    """What was found to help, in words; '' where nothing is sought."""
    if offers is None:
        return ""
    found = [offers.at_least, *(offer.found for offer in offers.offers)]
    text = "; ".join(filter(None, found))
    if offers.searching:
        return f"{text}; looking for more…" if text else "Looking for what would fit…"
    return f"{text}." if text else ""


def fault_html(
    fault: Fault, more: str = "", *, found: str = "", details: str = "Details", unfolded: bool = False
) -> str:
    """What failed, what was `found` to help, what to do, and `more`. Its detail folds under the title `details`;
    `unfolded` is for a log: it is open, and shows its end."""
    detail = ""
    if fault.detail:
        is_open, kind = (" open", ' class="alpa-log"') if unfolded else ("", "")
        detail = (
            f"<details{is_open}><summary>{escape(details)}</summary>"
            f'<pre tabindex="0"{kind}><span>{escape(fault.detail)}</span></pre></details>'
        )
    return (
        f'<div class="alpa-message" role="alert"><p><b>{escape(fault.what)}:</b> {escape(fault.found)}.</p>'
        f"{f'<p><b>{escape(found)}</b></p>' if found else ''}"
        f"<p>{escape(fault.remedy)}{' ' if more else ''}{escape(more)}</p>{detail}</div>"
    )
