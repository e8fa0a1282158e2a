"""The plan as a plain HTML table: what a saved notebook shows when no kernel is running."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from alpa_explore import units
from alpa_explore.plans.phrases import run_of_layers, submesh_phrase
from alpa_explore.plans.report.text import sentence
from alpa_explore_widgets.export.sharing import explore_code

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan
    from alpa_explore_widgets.session.settings import Settings

_COLUMNS = (
    "stage",
    "layers",
    "submesh",
    "logical mesh",
    "per microbatch",
    "weights + state",
    "activations",
    "workspace",
    "peak",
)


def plan_table(plan: Plan | None, settings: Settings, reference: str = "") -> str:
    """The plan and the code that shows it again, as HTML without a style sheet: front ends remove those from saved
    outputs."""
    code = f"<pre>{escape(explore_code(settings, reference))}</pre>"
    if plan is None:
        return f'<div class="alpa-saved"><p>No plan was ready when this was saved. The cell was:</p>{code}</div>'
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in _rows(plan))
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    return (
        f'<div class="alpa-saved"><p><b>{escape(plan.model.name)}</b> on {escape(str(plan.cluster))}, '
        f"B = {plan.options.num_microbatches:,}, δ = {plan.options.delta:g}, {plan.options.num_layers} layers. "
        f"{escape(sentence(plan))}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<p>Run the cell to explore this plan again:</p>{code}</div>"
    )


def _rows(plan: Plan) -> list[tuple[str, ...]]:
    size = units.bytes_
    return [
        (
            str(s.index),
            run_of_layers(s.layers),
            submesh_phrase(s.submesh, s.device),
            units.shape(s.logical_mesh),
            units.seconds(s.latency_seconds),
            size(s.weight_bytes),
            f"{s.microbatches_held:,} × {size(s.activation_bytes)}",
            size(s.workspace_bytes),
            size(s.peak_bytes),
        )
        for s in plan.stages
    ]
