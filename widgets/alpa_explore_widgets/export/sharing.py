"""Code for the current settings, names of saved files, and plan files that the user opens."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from alpa_explore.errors import PlanFileError
from alpa_explore.plans.export.exported import Exported
from alpa_explore.plans.plan import Plan, load_plan
from alpa_explore.sharding.spec_constraint import mappings
from alpa_explore_widgets.session.settings import Settings, cluster_text

_DEVICE = {
    "memory_bytes": "memory_bytes",
    "peak_flops": "peak_flops",
    "inside_bandwidth": "inside_node",
    "between_bandwidth": "between_nodes",
}
"""Setting -> the field of the cluster or its device that it overrides."""


def plan_code(settings: Settings, *, reference: str = "", user_model: bool = False, scheduler: str = "") -> str:
    """Python code that makes the plan for these settings; `reference` names the model where its name does not, as that
    of a config file; `user_model`: the model is not of the catalogue, so the code
    has a comment in its place; `scheduler`: that of the attached hosts of which the cluster is made."""
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
    options = _options(s, [f"pipeline=ax.PipelineOptions({pipeline})"] if pipeline else [], fixed=user_model)
    return "\n".join([*lines, f"plan = ax.plan({model}, cluster, {options})", ""])


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
