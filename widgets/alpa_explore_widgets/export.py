"""What leaves the explorer: Python code for the settings, files, and the plan as a table and a picture, which a saved
notebook shows when no kernel is running; and plan files that the user opens."""

import tempfile
import threading
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from uuid import uuid4

from IPython.display import display, update_display

from alpa_explore import units
from alpa_explore.errors import PlanFileError
from alpa_explore.models.catalog import entry
from alpa_explore.plans.export.exported import Exported
from alpa_explore.plans.phrases import run_of_layers, submesh_phrase
from alpa_explore.plans.plan import Plan, load_plan
from alpa_explore.plans.report.text import sentence
from alpa_explore.sharding.spec_constraint import mappings
from alpa_explore_widgets.overview.cards import plan_svg
from alpa_explore_widgets.session import tuning
from alpa_explore_widgets.session.background import NewestWins
from alpa_explore_widgets.session.settings import Settings, cluster_text
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


_DEVICE = {
    "memory_bytes": "memory_bytes",
    "peak_flops": "peak_flops",
    "inside_bandwidth": "inside_node",
    "between_bandwidth": "between_nodes",
}
"""Setting -> the field of the cluster or its device that it overrides."""


def plan_code(
    settings: Settings, *, reference: str = "", user_model: bool = False, scheduler: str = "", timed: bool = False
) -> str:
    """Python code that makes the plan for these settings; `reference` names the model where its name does not, as that
    of a config file; `user_model`: the model is not of the catalogue, so the code
    has a comment in its place; `scheduler`: that of the attached hosts of which the cluster is made; `timed`: the plan
    has the times of kernels."""
    s = settings
    attached = f'ax.attach("{scheduler}").cluster({s.devices_per_node})'
    cluster = attached if scheduler else f'ax.Cluster.parse("{cluster_text(s)}")'
    overrides = [name for name in _DEVICE if getattr(s, name) is not None]
    lines = ["import alpa_explore as ax", "", f"cluster = {cluster}"]
    if overrides:
        lines = ["from dataclasses import replace", "", *lines, "device = cluster.device"]
        lines += [f"cluster = cluster.with_changes({_DEVICE[name]}={_override(s, name)})" for name in overrides]
    model = "graph" if user_model else repr(reference or s.model)
    precision = "" if s.precision is None else f", precision={s.precision!r}"
    if user_model:
        lines += [
            "",
            f"# graph = ax.capture(your model, one microbatch of {s.microbatch} samples{precision})  # {s.model!r}",
        ]
    pipeline = ", ".join(f"{name}={value!r}" for name, value in s.pipeline.items())
    more = [f"pipeline=ax.PipelineOptions({pipeline})"] if pipeline else []
    batch = s.microbatch * s.num_microbatches
    if not user_model and batch != entry(reference or s.model, s.sequence).global_batch:  # B kept the microbatch
        more.insert(0, f"global_batch={batch}")
    options = _options(s, more, fixed=user_model)
    lines.append(f"plan = ax.plan({model}, cluster, {options})")
    if timed:
        where = f'scheduler="{scheduler}"' if scheduler else ""
        lines += [
            f"cluster = cluster.with_changes(measured=ax.profile(plan{', ' * bool(where)}{where}).store)",
            lines[-1],
        ]
    return "\n".join([*lines, ""])


def explore_code(settings: Settings, reference: str = "") -> str:
    """The call of `explore` that shows the same settings again; `reference` as in `plan_code`."""
    s, model = settings, repr(reference) if reference else f'"{settings.model}"'
    more = [f"{name}={value!r}" for name, value in s.pipeline.items()]
    device = [f"{name}={getattr(s, name)!r}" for name in _DEVICE if getattr(s, name) is not None]
    return f'explore({model}, cluster="{cluster_text(s)}", {_options(s, more, device)})'


def _options(s: Settings, pipeline: Sequence[str], device: Sequence[str] = (), *, fixed: bool = False) -> str:
    """The options of both, those at their defaults left out; `fixed`: the precision is that of a captured graph."""
    given = {
        "num_layers": s.num_layers,
        "rematerialization": s.rematerialization,
        "precision": None if fixed else s.precision,
        "sequence": s.sequence,
        "solver": None if s.solver == "auto" else s.solver,
    }
    options = [f"num_microbatches={s.num_microbatches}", f"delta={s.delta!r}"]
    options += [f"{name}={value!r}" for name, value in given.items() if value is not None]
    options += [*pipeline, *([f"boundaries={s.boundaries!r}"] if s.boundaries else []), *device]
    return ", ".join(options + [f"{name}={value!r}" for name, value in mappings(s.spec_constraints).items()])


def plan_from_text(name: str, text: bytes) -> Plan:
    """The plan in a file that the user opened. PlanFileError as from `load_plan`, with the user's name of the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "uploaded.plan.json"
        path.write_bytes(text)
        try:
            return load_plan(path)
        except PlanFileError as error:
            raise PlanFileError(error.what, found=error.found.replace(str(path), name), remedy=error.remedy) from error


def file_name(plan: Plan, ending: str) -> str:
    """'gpt-1.3b_2x4_B128.csv'."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in plan.model.name)
    c = plan.cluster
    return f"{safe}_{c.nodes}x{c.devices_per_node}_B{plan.options.num_microbatches}.{ending}"


def not_expressed(exported: Exported) -> str:
    """What an exported file does not express, in a sentence; '' where it expresses everything."""
    if not exported.limits:
        return ""
    first = exported.limits[0]
    more = f", and {len(exported.limits) - 1} more" if len(exported.limits) > 1 else ""
    return f"It does not express: {first.what} ({first.instead}){more}; its first lines list them."


def _override(settings: Settings, name: str) -> str:
    """The value of an overridden field, as Python code."""
    value = getattr(settings, name)
    if name == "memory_bytes":
        return str(int(value))
    if name == "peak_flops":
        return f'{{k: v * ({value!r} / device.peak("float16")) for k, v in device.peak_flops.items()}}'
    return f"replace(cluster.{_DEVICE[name]}, bandwidth={value!r})"
