"""The settings of the explorer: everything that its controls can change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from alpa_explore.models import catalog
from alpa_explore.sharding.spec_constraint import SpecConstraint, mappings

if TYPE_CHECKING:
    from alpa_explore.plans.plan import Plan

REPLAN_SETTINGS = ("num_microbatches", "delta", "schedule", "communication")
"""Settings whose change is answered by `replan`, at once; a change of any other setting needs the whole planner."""
MODEL_SETTINGS = (
    "microbatch",
    "num_microbatches",
    "num_layers",
    "rematerialization",
    "precision",
    "spec_constraints",
)
"""Settings that do not carry over to another model."""
DEVICE_SETTINGS = ("memory_bytes", "peak_flops", "inside_bandwidth", "between_bandwidth")
"""Figures of a device in place of those of its preset; they do not carry over to another device."""


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
    """None: the default of the model; 'auto': only in the stages that need it."""
    precision: str | None = None
    """The dtype of the weights; None: the default of the model."""
    solver: str = "auto"
    schedule: str = "1f1b"
    communication: bool = False
    submesh_space: str = "all"
    spec_constraints: tuple[SpecConstraint, ...] = ()
    """Sharding specs that operators must have or must not have."""

    def needs_only_replan(self, other: Settings) -> bool:
        """True when `other` differs from these at most in settings that `replan` answers."""
        return replace(self, **{name: getattr(other, name) for name in REPLAN_SETTINGS}) == other

    @property
    def plan_options(self) -> dict[str, Any]:
        """The options of the planner besides the model and the cluster, without those that are at their defaults."""
        optional: dict[str, Any] = {
            "solver": self.solver if self.solver != "auto" else None,
            "rematerialization": self.rematerialization,
            "pipeline": self.pipeline or None,
            **mappings(self.spec_constraints),
        }
        return {
            "num_microbatches": self.num_microbatches,
            "delta": self.delta,
            "num_layers": self.num_layers,
            **{name: value for name, value in optional.items() if value is not None},
        }

    def equal_for_replan(self, other: Settings) -> bool:
        """True when `other` has the same value of every setting that `replan` answers."""
        return all(getattr(self, name) == getattr(other, name) for name in REPLAN_SETTINGS)

    @property
    def pipeline(self) -> dict[str, Any]:
        """The fields of PipelineOptions that differ from the paper's."""
        values = {name: getattr(self, name) for name in ("schedule", "communication", "submesh_space")}
        return {name: value for name, value in values.items() if value not in ("1f1b", False, "all")}


def settings_of(plan: Plan) -> Settings:
    """The settings that `plan` was made with."""
    model, precision = plan.model.recipe or plan.model.name, plan.model.precision
    has_default_precision = model in catalog.names() and catalog.entry(model).precision == precision
    return Settings(
        model=model,
        precision=None if has_default_precision else precision,
        microbatch=plan.model.samples,
        nodes=plan.cluster.nodes,
        devices_per_node=plan.cluster.devices_per_node,
        device=plan.cluster.device.name,
        num_microbatches=plan.options.num_microbatches,
        delta=plan.options.delta,
        num_layers=plan.options.num_layers,
        rematerialization=plan.options.rematerialization or plan.model.rematerialization,
        solver=plan.options.solver,
        schedule=plan.options.pipeline.schedule,
        communication=plan.options.pipeline.communication,
        submesh_space=plan.options.pipeline.submesh_space,
        spec_constraints=plan.options.spec_constraints,
    )
