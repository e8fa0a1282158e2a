"""The arguments of `ax.plan` as one checked value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Literal

from alpa_explore.arguments import plain_name
from alpa_explore.cluster import Cluster, Software
from alpa_explore.errors import OptionError
from alpa_explore.graph import TrainingGraph
from alpa_explore.inter_op.options import PipelineOptions, check_options
from alpa_explore.intra_op.solve import check_solver
from alpa_explore.intra_op.stage.recomputation import FULL, NONE
from alpa_explore.models.catalog import entry, names
from alpa_explore.plans.records import PlanOptions
from alpa_explore.search.stages.versions import kinds_of
from alpa_explore.sharding.spec_constraint import SpecConstraint

if TYPE_CHECKING:
    from alpa_explore.tracing.batches import Batches

Count = int | Literal["auto"]


def in_its_mode(pipeline: PipelineOptions, recipe: str | None, cluster: Cluster) -> PipelineOptions:
    """`pipeline` in the paper's mode, where it does not say otherwise, and the model (by its recipe), the cluster and
    its software are those of the paper's tables."""
    of_paper = recipe in names() and entry(recipe or "").gpus is not None
    software = cluster.software
    ideal = software.name == Software().name and not software.low_precision
    its_own = of_paper and ideal and cluster.device.name == "v100" and not cluster.others
    return pipeline.for_papers_setting() if its_own else pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """The arguments of `ax.plan`, checked. NumPy numbers become Python numbers, for files and cache keys.

    OptionError for invalid values; ClusterError and UnknownNameError from `Cluster.parse` and the catalogue.
    """

    model: TrainingGraph | Batches | str
    """A captured graph (one microbatch), a model at any batch size, or a catalogue name."""
    cluster: Cluster
    num_microbatches: Count
    """B; 'auto' takes the B with the highest throughput."""
    global_batch: int | None = None
    """Samples of an iteration; None: those of `model`, or the paper's for a catalogue name."""
    delta: float = 0.5
    """By how much the FLOPs of a layer may exceed the mean, as a share."""
    num_layers: int | None = None
    """None: the catalogue's number, or one for the model's blocks (`default_layering`)."""
    solver: str = "auto"
    boundaries: Sequence[str] = ()
    """Operators or modules with which a layer begins; empty: layers are clustered."""
    rematerialization: bool | str | None = None
    """What is recomputed (`intra_op.stage.recomputation`): a name, all blocks (True) or nothing (False), chosen for
    each stage ('auto'), or as the model says (None)."""
    precision: str | None = None
    """The dtype of a catalogue model, also as bf16, or that of its products, as fp8; None: its own. Afterwards a low
    precision is part of the cluster's software, too."""
    sequence: int | None = None
    """Tokens of a sample of a catalogue model; None: its own. Afterwards it is part of the model's name."""
    zigzag: int | None = None
    """Devices for which sequences are in zig-zag order from the inputs on; 1 is natural order; None: what is faster."""
    pipeline: PipelineOptions = field(default_factory=PipelineOptions)
    spec_constraints: tuple[SpecConstraint, ...] = ()

    def __post_init__(self) -> None:
        layers = "The number of layers must be a whole number", "Give 1 or more, or leave it out for the default."
        parts = (
            "zigzag must be a number of devices, 1 or more",
            "Give the devices that share a sequence, 1 for natural order, or None for what is faster.",
        )
        for name, value in (
            ("num_microbatches", microbatch_count(self.num_microbatches)),
            ("delta", flop_tolerance(self.delta)),
            ("num_layers", _whole(self.num_layers, *layers)),
            ("zigzag", _whole(self.zigzag, *parts, least=1)),
            ("pipeline", pipeline_options(self.pipeline)),
            ("boundaries", _boundaries(self.boundaries)),
        ):
            object.__setattr__(self, name, value)
        for name in ("rematerialization", "precision", "solver"):
            object.__setattr__(self, name, plain_name(getattr(self, name)))
        if isinstance(self.model, str):
            object.__setattr__(self, "model", entry(self.model, self.sequence).reference)
        elif self.sequence is not None:
            raise OptionError(
                "The sequence of a captured graph is fixed",
                found=f"sequence={self.sequence} with a captured model",
                remedy="Capture the model with inputs of that length, or give the name of a model.",
            )
        object.__setattr__(self, "cluster", self.cluster.in_precision(self.precision))
        recipe = self.model if isinstance(self.model, str) else getattr(self.model, "recipe", None)
        object.__setattr__(self, "pipeline", in_its_mode(self.pipeline, recipe, self.cluster))
        check_solver(self.solver)
        check_options(self.pipeline, self.cluster)
        kinds_of(self.rematerialization, 1)
        if self.rematerialization == NONE:
            object.__setattr__(self, "rematerialization", False)
        if self.auto and self.global_batch is None and isinstance(self.model, str):
            object.__setattr__(self, "global_batch", entry(self.model).global_batch)
        if self.auto and self.global_batch is not None and isinstance(self.model, TrainingGraph):
            raise OptionError(
                "The microbatch of a captured graph is fixed",
                found=f"global_batch={self.global_batch} with a graph and B auto",
                remedy="Give `ax.capture_batches(module, inputs)` instead of the graph, or leave out global_batch.",
            )

    @property
    def auto(self) -> bool:
        """Whether the planner chooses B."""
        return self.num_microbatches == "auto"

    @property
    def count(self) -> int:
        """B, where the request gives a number."""
        assert self.num_microbatches != "auto", "B is chosen before a plan is made"
        return self.num_microbatches

    @property
    def whole_rematerialization(self) -> bool | None:
        """True or False where it applies to all layers; None where the stages choose, or the model decides."""
        return self.rematerialization if isinstance(self.rematerialization, bool) else None

    @classmethod
    def again(cls, options: PlanOptions, model: TrainingGraph, cluster: Cluster, zigzag: int | None) -> PlanRequest:
        """The request by which a plan with these `options` was made, for a model and a cluster."""
        return cls(
            model=model,
            cluster=cluster,
            num_microbatches=options.num_microbatches,
            delta=options.delta,
            num_layers=options.num_layers,
            solver=options.solver,
            boundaries=options.boundaries,
            rematerialization=options.rematerialization or None,
            zigzag=zigzag,
            pipeline=options.pipeline,
            spec_constraints=options.spec_constraints,
        )

    def at(self, num_microbatches: int) -> PlanRequest:
        """The same request for one B."""
        return replace(self, num_microbatches=num_microbatches)

    def options(self, num_layers: int) -> PlanOptions:
        """The options in the form that a plan records."""
        return PlanOptions(
            num_microbatches=self.count,
            delta=self.delta,
            num_layers=num_layers,
            solver=self.solver,
            boundaries=tuple(self.boundaries),
            pipeline=self.pipeline,
            rematerialization=FULL if self.rematerialization is True else self.rematerialization or "",
            spec_constraints=self.spec_constraints,
        )


def microbatch_count(given: Count) -> Count:
    """B, checked."""
    if plain_name(given) == "auto":
        return "auto"
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise OptionError("B must be a whole number or 'auto'", found=repr(given), remedy="Give 1 or more, or 'auto'.")
    if given < 1:
        raise OptionError(
            "The number of microbatches must be at least 1", found=f"B = {given}", remedy="Give 1 or more."
        )
    return int(given)


def flop_tolerance(delta: float) -> float:
    """delta, checked."""
    if isinstance(delta, bool) or not isinstance(delta, Real) or not 0 <= delta < float("inf"):
        raise OptionError(
            "delta, the fraction by which a layer may exceed the mean FLOPs, must be a number of 0 or more",
            found=f"delta = {delta!r}",
            remedy="Give 0 or more; 0.5 is common.",
        )
    return float(delta)


def pipeline_options(given: PipelineOptions | None) -> PipelineOptions:
    """Pipeline options, checked; where none are given, those of the paper with the schedules that the software runs."""
    if given is not None and not isinstance(given, PipelineOptions):
        raise OptionError(
            "The argument pipeline must be a PipelineOptions",
            found=repr(given),
            remedy="For example pipeline=ax.PipelineOptions(schedule='gpipe', cuts=(4, 8)).",
        )
    return given or PipelineOptions()


def _whole(given: int | None, what: str, remedy: str, least: float = -math.inf) -> int | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
        raise OptionError(what, found=repr(given), remedy=remedy)
    return int(given)


def _boundaries(given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise OptionError(
            "The layer boundaries must be a list of names",
            found=repr(given),
            remedy='For example boundaries=["blocks.1", "blocks.2"]: operators or modules with which a layer begins.',
        )
    return tuple(given)
