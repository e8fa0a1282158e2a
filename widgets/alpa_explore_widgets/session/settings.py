"""The settings of the explorer: what its controls can change."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from alpa_explore.cluster import Cluster
from alpa_explore.cluster.precisions import precision_name
from alpa_explore.inter_op.options import AUTO, PipelineOptions, phrases
from alpa_explore.inter_op.schedule_terms import SCHEDULES
from alpa_explore.models import catalog
from alpa_explore.planner.request import in_its_mode
from alpa_explore.plans.plan import Plan
from alpa_explore.sharding.spec_constraint import SpecConstraint, mappings

MODEL_SETTINGS = (
    "microbatch",
    "num_microbatches",
    "num_layers",
    "rematerialization",
    "precision",
    "sequence",
    "expert_imbalance",
    "spec_constraints",
    "boundaries",
    "cuts",
    "num_stages",
    "stage_submeshes",
)
"""Settings that do not carry over to another model."""
STAGE_SETTINGS = ("boundaries", "cuts", "num_stages", "stage_submeshes", "imbalance_tolerance", "tied_weights")
"""Constraints and options of stages that no control shows: they are kept, listed, and can be removed."""
DEVICE_SETTINGS = ("memory_bytes", "peak_flops", "inside_bandwidth", "between_bandwidth")
"""Figures of a device in place of those of its preset; they do not carry over to another device."""
REPRICED_SETTINGS = ("expert_imbalance", *DEVICE_SETTINGS)
"""Settings whose change is answered at once by `reprice`, with the choices as they are: an estimate."""
REPLAN_SETTINGS = ("num_microbatches", "delta", "schedule", "paper", *REPRICED_SETTINGS)
"""Settings whose change is answered at once, all but the repriced ones exactly."""
SCALED_SETTINGS = ("nodes", "devices_per_node", "microbatch", "sequence")
"""Settings whose change is estimated from the work of a device (panels/verdict.py)."""
PLANNED_SETTINGS = (*REPRICED_SETTINGS, *SCALED_SETTINGS)
"""Settings that are estimated at once; the planner runs as soon as they rest. All others wait for the Plan button."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The values of the controls, in SI units."""

    model: str
    """A catalogue name, or the name of the model that the user gave."""
    microbatch: int
    """Samples in one microbatch."""
    nodes: int
    devices_per_node: int
    device: str
    """A preset, or the name of the device of the cluster that the user gave."""
    num_microbatches: int
    """B."""
    delta: float
    num_layers: int | None
    """None: the planner chooses a number for the model."""
    memory_bytes: float | None = None
    """Memory of one device. In this and the next three settings None means the value of the preset."""
    peak_flops: float | None = None
    """FLOP/s of one device in half precision; the rates of other dtypes are scaled in proportion."""
    inside_bandwidth: float | None = None
    """Bytes per second of the link inside a node."""
    between_bandwidth: float | None = None
    """Bytes per second of the network of one node."""
    rematerialization: bool | str | None = None
    """None: the default of the model; False: nothing; else the name of what is recomputed, True for 'full', 'auto' for
    what each stage needs."""
    precision: str | None = None
    """The dtype of the weights, or that of products alone, as fp8; None: the default of the model."""
    sequence: int | None = None
    """Tokens of a sample; None: the default of the model."""
    expert_imbalance: float = 1.0
    """Rows of the busiest device over the mean, where devices hold different experts."""
    solver: str = "auto"
    schedule: str = AUTO
    """AUTO: the fastest of those that the software runs, until another is chosen."""
    paper: bool | None = None
    communication: bool | None = None
    submesh_space: str = "all"
    stages_per_submesh: int = 2
    boundaries: tuple[str, ...] = ()
    """Operators or modules with which a layer begins; () where layers are clustered."""
    cuts: tuple[int, ...] = ()
    num_stages: int | None = None
    stage_submeshes: tuple[tuple[int, int, int], ...] = ()
    imbalance_tolerance: float | None = None
    tied_weights: bool | None = None
    """These and the four above are the fields of `PipelineOptions`."""
    spec_constraints: tuple[SpecConstraint, ...] = ()
    """Sharding specs that operators must have or must not have."""

    def needs_only_replan(self, other: Settings) -> bool:
        """True when `other` differs from these at most in settings that are answered at once."""
        return self.with_those_of(other, REPLAN_SETTINGS) == other

    def waits_for_plan(self, other: Settings) -> bool:
        """True when `other` differs from these in a setting that waits for the Plan button."""
        return self.with_those_of(other, (*REPLAN_SETTINGS, *SCALED_SETTINGS)) != other

    def with_those_of(self, other: Settings, names: tuple[str, ...]) -> Settings:
        """These settings with the values of `names` in `other`."""
        return replace(self, **{name: getattr(other, name) for name in names})

    @property
    def plan_options(self) -> dict[str, Any]:
        """The options of the planner besides the model and the cluster, without those that are at their defaults."""
        optional: dict[str, Any] = {
            "solver": self.solver if self.solver != "auto" else None,
            "rematerialization": self.rematerialization,
            "pipeline": self.pipeline or None,
            "boundaries": self.boundaries or None,
            **mappings(self.spec_constraints),
        }
        return {
            "num_microbatches": self.num_microbatches,
            "delta": self.delta,
            "num_layers": self.num_layers,
            **{name: value for name, value in optional.items() if value is not None},
        }

    def equal_in(self, names: tuple[str, ...], other: Settings) -> bool:
        """True when `other` has the same values of `names`."""
        return all(getattr(self, name) == getattr(other, name) for name in names)

    @property
    def pipeline(self) -> dict[str, Any]:
        """The fields of PipelineOptions that differ from their defaults."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(PipelineOptions)}
        return {name: value for name, (value, default) in values.items() if value != default}

    @property
    def stage_constraints(self) -> dict[str, str]:
        """Those of STAGE_SETTINGS that are set, in words."""
        words = phrases(PipelineOptions(**self.pipeline))
        if self.boundaries:
            words["boundaries"] = f"layers begin at {', '.join(self.boundaries)}"
        return {name: words[name] for name in STAGE_SETTINGS if name in words}


def settings_of(plan: Plan) -> Settings:
    """The settings that `plan` was made with."""
    model, precision = plan.model.recipe or plan.model.name, plan.model.precision
    sequence, has_default_precision = None, False
    if catalog.is_reference(model):
        entry = catalog.entry(model)
        model, _, tokens = entry.name.partition("@")
        sequence, has_default_precision = int(tokens) if tokens else None, entry.precision == precision
    if low := plan.cluster.software.low_precision:
        precision, has_default_precision = precision_name(low), False
    return Settings(
        model=model,
        precision=None if has_default_precision else precision,
        sequence=sequence,
        expert_imbalance=plan.cluster.device.expert_imbalance,
        microbatch=plan.model.samples,
        nodes=plan.cluster.nodes,
        devices_per_node=plan.cluster.devices_per_node,
        device=device_setting(plan.cluster),
        num_microbatches=plan.options.num_microbatches,
        delta=plan.options.delta,
        num_layers=None if plan.options.boundaries else plan.options.num_layers,
        # A model that recomputes by itself does so by layers: its default.
        rematerialization=plan.options.rematerialization or (None if plan.model.rematerialization else False),
        solver=plan.options.solver,
        boundaries=plan.options.boundaries,
        **_pipeline_settings(plan),
        spec_constraints=plan.options.spec_constraints,
    )


def _pipeline_settings(plan: Plan) -> dict[str, Any]:
    """The pipeline options of `plan`; None for those that follow from its mode, or from its model and cluster."""
    options = plan.options.pipeline
    values = {field.name: getattr(options, field.name) for field in fields(PipelineOptions)}
    usual = in_its_mode(PipelineOptions(), plan.model.recipe, plan.cluster)
    values["paper"] = None if bool(usual.paper) is bool(options.paper) else bool(options.paper)
    for name in ("communication", "tied_weights"):
        values[name] = None if values[name] is not bool(options.paper) else values[name]
    alone = options.schedule == SCHEDULES[0] and not plan.cluster.software.schedules
    if plan.schedules or alone:  # what the planner chooses where none is named
        values |= {"schedule": AUTO, "stages_per_submesh": PipelineOptions().stages_per_submesh}
    return values


def device_setting(cluster: Cluster) -> str:
    """The name of its devices; a cluster of unlike nodes is named by its whole text, '1x8:h100+1x8:a100'."""
    return str(cluster) if cluster.others else cluster.device.name


def is_mixture(device: str) -> bool:
    """Whether a device setting names a cluster of unlike nodes."""
    return "+" in device and ":" in device


def cluster_text(settings: Settings) -> str:
    """'2x8:a100', as `Cluster.parse` reads it."""
    if is_mixture(settings.device):
        return settings.device
    return f"{settings.nodes}x{settings.devices_per_node}:{settings.device}"
