"""The plan as a plain HTML table and as a picture: what a saved notebook shows when no kernel is running."""

import threading
from collections.abc import Callable
from html import escape
from uuid import uuid4

from IPython.display import display, update_display

from alpa_explore import units
from alpa_explore.plans.phrases import run_of_layers, submesh_phrase
from alpa_explore.plans.plan import Plan
from alpa_explore.plans.report.text import sentence
from alpa_explore_widgets.export.sharing import explore_code
from alpa_explore_widgets.overview.cards import plan_svg
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.background import NewestWins
from alpa_explore_widgets.session.settings import Settings
from alpa_explore_widgets.session.state import State

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


class SavedOutputs:
    """Two outputs below the explorer in each cell that shows it: the table and the picture of the plan on screen.

    They are outputs of their own, so that they can be updated without rebuilding the widget; a style sheet hides them
    while the widget is there.
    """

    def __init__(self, table: Callable[[State], str]) -> None:
        """`table` makes the table of a state."""
        self._table, self._shown = table, False
        self._ids = uuid4().hex, uuid4().hex
        self._pictures: NewestWins[tuple[Plan, float]] = NewestWins(self._draw, "alpa-explore picture")

    def show(self, state: State) -> None:
        """Add both to the output of a cell."""
        self._shown = True
        display({"text/html": self._table(state)}, raw=True, display_id=self._ids[0])
        picture = {"text/html": ""} if state.plan is None else {"image/svg+xml": plan_svg(state.plan)}
        display({**picture, "text/plain": ""}, raw=True, display_id=self._ids[1])

    def follow(self, old: State, new: State) -> None:
        """Show another plan: the table at once, the picture once the sliders rest."""
        if self._shown and new.plan is not None and new.plan is not old.plan:
            update_display({"text/html": self._table(new)}, raw=True, display_id=self._ids[0])
            self._pictures.submit((new.plan, 0.0 if old.plan is None else tuning.PICTURE_SECONDS))

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the picture is that of the plan. Returns False on a timeout."""
        return self._pictures.wait(timeout)

    def close(self) -> None:
        """Draw no more."""
        self._pictures.cancel()

    def _draw(self, job: tuple[Plan, float], cancel: threading.Event) -> None:
        plan, rest_seconds = job
        if not cancel.wait(rest_seconds):
            picture = {"image/svg+xml": plan_svg(plan), "text/plain": ""}
            update_display(picture, raw=True, display_id=self._ids[1])


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
