"""What leaves the explorer: Python code for the settings, files, and the plan as a table and a picture, which a saved
notebook shows when no kernel is running; and plan files that the user opens."""

import re
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from html import escape
from pathlib import Path
from typing import Any
from uuid import uuid4

from IPython.display import display, update_display

from alpa_explore import units
from alpa_explore.baselines.kinds import EXCHANGES, takes
from alpa_explore.cluster import Cluster
from alpa_explore.cluster.precisions import recipe_of
from alpa_explore.cluster.presets import preset_names
from alpa_explore.cluster.software_profiles import software_names
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
            self._update_table(new)
            self._pictures.submit((new.plan, 0.0 if old.plan is None else tuning.PICTURE_SECONDS))

    def send_again(self, state: State, timeout: float | None = None) -> None:
        """Show both once more: what runs a notebook cell by cell (nbclient) drops what a kernel sends between two."""
        self._pictures.wait(timeout)
        if self._shown and state.plan is not None:
            self._update_table(state)
            self._update_picture(state.plan)

    def close(self) -> None:
        """Draw no more."""
        self._pictures.cancel()

    def _draw(self, job: tuple[Plan, float], cancel: threading.Event) -> None:
        plan, rest_seconds = job
        if not cancel.wait(rest_seconds):
            self._update_picture(plan)

    def _update_table(self, state: State) -> None:
        update_display({"text/html": self._table(state)}, raw=True, display_id=self._ids[0])

    def _update_picture(self, plan: Plan) -> None:
        update_display({"image/svg+xml": plan_svg(plan), "text/plain": ""}, raw=True, display_id=self._ids[1])


def plan_table(plan: Plan | None, code: str) -> str:
    """The plan and the code that shows it again, as HTML without a style sheet: front ends remove those from saved
    outputs."""
    code = f"<pre>{escape(code)}</pre>"
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
            f"{units.number(s.microbatches_held)} × {size(s.activation_bytes)}",
            size(s.workspace_bytes),
            size(s.peak_bytes),
        )
        for s in plan.stages
    ]


def plan_code(
    settings: Settings,
    cluster: Cluster,
    *,
    reference: str = "",
    baseline: str = "",
    scheduler: str = "",
    explores: bool = False,
) -> str:
    """Python code that makes the plan for these settings on `cluster`, or with `explores` shows it in an explorer.

    `reference` names the model: of the catalogue, or of a config; '' for one of the user's own, in whose place the code
    has a comment. `baseline`: the plan is this one by hand (`PlanOptions.baseline`). `scheduler`: that of the attached
    hosts of which the cluster is made.
    """
    s, own, where = settings, not reference, f'scheduler="{scheduler}"' if scheduler else ""
    lines = ["import alpa_explore as ax", *["from alpa_explore_widgets import explore"] * explores, ""]
    if scheduler:
        lines.append(f'cluster = ax.attach("{scheduler}").cluster({s.devices_per_node})')
    else:
        lines += _cluster_code(cluster, s.precision)
    if own:
        precision = "" if s.precision is None else f", precision={s.precision!r}"
        samples = f"one microbatch of {s.microbatch} samples"
        lines += ["", f"# graph = ax.capture(your model, {samples}{precision})  # {s.model!r}"]
    batch = s.microbatch * s.num_microbatches
    of_batch = [] if own or batch == entry(reference, s.sequence).global_batch else [f"global_batch={batch}"]
    count, model = f"num_microbatches={s.num_microbatches}", "graph" if own else repr(reference)
    options = [*of_batch, count, f"delta={s.delta!r}", *_options(s, own=own)]
    fields = [f"{name}={value!r}" for name, value in s.pipeline.items()]
    whole = [f"pipeline=ax.PipelineOptions({', '.join(fields)})"] if fields else []
    if baseline:
        lines += _baseline_code(s, reference, baseline, of_batch)
    elif not explores or cluster.device.measured is not None:
        lines.append(f"plan = ax.plan({model}, cluster, {', '.join([*options, *whole])})")
    if cluster.device.measured is not None:
        lines.append(f"cluster = cluster.with_changes(measured=ax.profile(plan{', ' * bool(where)}{where}).store)")
        lines += [] if explores else [lines[-2]]
    if explores:
        shown = "plan" if baseline else f"{model}, cluster=cluster, {', '.join([*options, *fields])}"
        lines.append(f"explore({shown})")
    return "\n".join([*lines, ""])


def _options(settings: Settings, *, own: bool) -> list[str]:
    """The options that `ax.plan` and `explore` share, those at their defaults left out; the precision of a captured
    graph is fixed."""
    s = settings
    given = {
        "num_layers": s.num_layers,
        "rematerialization": s.rematerialization,
        "precision": None if own else s.precision,
        "sequence": s.sequence,
        "solver": None if s.solver == "auto" else s.solver,
        "boundaries": s.boundaries or None,
        **mappings(s.spec_constraints),
    }
    return [f"{name}={value!r}" for name, value in given.items() if value is not None]


def _baseline_code(settings: Settings, reference: str, baseline: str, of_batch: Sequence[str]) -> list[str]:
    """Lines that make a baseline of this name with its degrees."""
    s, kind = settings, baseline.partition(" (")[0]
    degrees = {name: int(size) for name, size in re.findall(r"\b(tp|dp|pp|cp|ep|chunks) (\d+)", baseline)}
    degrees |= {name: int(size) for size, name in re.findall(r"(\d+) (replicas)", baseline)}
    degrees |= {"zero": int(stage[1])} if (stage := re.search(r"ZeRO-(\d)", baseline)) else {}
    given: dict[str, Any] = {name: degrees[name] for name in takes(kind) if name in degrees}
    exchange = baseline.rstrip(")").rpartition(", ")[2]
    given |= {"exchange": exchange} if exchange in EXCHANGES else {}
    # Of layouts, which name the ZeRO stage, layers are blocks.
    given |= {} if "zero" in given else {"num_layers": s.num_layers, "delta": s.delta}
    given |= {"rematerialization": s.rematerialization, "paper": s.paper}
    options = ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
    lines, graph, count = [], "graph", f"num_microbatches={s.num_microbatches}"
    if reference:
        name = repr(reference if s.sequence is None else f"{reference}@{s.sequence}")
        precision = [] if s.precision is None else [f"precision={s.precision!r}"]
        lines = [
            "from alpa_explore.planner.microbatch_graph import microbatch_graph",
            f"graph = microbatch_graph({', '.join([name, str(s.num_microbatches), *of_batch, *precision])})",
        ]
    return [*lines, f"plan = ax.baseline({graph}, cluster, {kind!r}, {count}, {options})"]


def _cluster_code(cluster: Cluster, precision: str | None) -> list[str]:
    """Lines that make `cluster`, whose `precision` is an option of the plan: one of presets, with what differs from it.
    Kernels that were timed are no part."""
    if recipe_of(precision):
        cluster = cluster.with_changes(software=replace(cluster.software, low_precision=""))
    text, known = str(cluster), {kind.device.name for kind in cluster.kinds}.issubset(preset_names())
    if cluster.software.name not in software_names():
        text = text.partition("@")[0]
    near = [text] if known else [f"{cluster.nodes}x{cluster.devices_per_node}:{name}" for name in preset_names()]
    differing = [(text, _differences(cluster, Cluster.parse(text))) for text in near]
    text, changes = min(differing, key=lambda found: len(found[1]))
    types: set[type] = set()
    given = "".join(f", {name}={_literal(value, types)}" for name, value in changes.items())
    imported = [f"from {kind.__module__} import {kind.__name__}" for kind in sorted(types, key=lambda t: t.__name__)]
    return [*imported, *[""] * bool(imported), f'cluster = ax.Cluster.parse("{text}"{given})']


def _differences(cluster: Cluster, base: Cluster) -> dict[str, Any]:
    """Fields of `cluster` and its device with another value than in `base` -> the value."""
    pairs = ((cluster.device, base.device), (cluster, base))
    return {
        name: getattr(own, name)
        for own, other in pairs
        for name in (field.name for field in fields(own))
        if name not in ("device", "measured") and getattr(own, name) != getattr(other, name)
    }


def _literal(value: Any, types: set[type]) -> str:
    """`value` as Python code; the classes that it names are added to `types`."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_literal(item, types)}' for key, item in value.items())}}}"
    if isinstance(value, tuple):
        return f"({''.join(f'{_literal(item, types)}, ' for item in value).rstrip()})"
    if not is_dataclass(value):
        return repr(value)
    types.add(type(value))
    given = {f.name: getattr(value, f.name) for f in fields(value) if getattr(value, f.name) != f.default}
    return f"{type(value).__name__}({', '.join(f'{name}={_literal(item, types)}' for name, item in given.items())})"


def plan_from_text(name: str, text: bytes) -> Plan:
    """The plan in a file that the user opened. PlanFileError as from `load_plan`, with the user's name of the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "uploaded.plan.json"
        path.write_bytes(text)
        try:
            return load_plan(path)
        except PlanFileError as error:
            raise PlanFileError(error.what, found=error.found.replace(str(path), name), remedy=error.remedy) from error


def not_expressed(exported: Exported) -> str:
    """What an exported file does not express, in a sentence; '' where it expresses everything."""
    if not exported.limits:
        return ""
    first = exported.limits[0]
    more = f", and {len(exported.limits) - 1} more" if len(exported.limits) > 1 else ""
    return f"It does not express: {first.what} ({first.instead}){more}; its first lines list them."
