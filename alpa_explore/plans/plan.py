"""The plan: layers, stages on submeshes, a strategy for every operator, and what all of it is predicted to take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from alpa_explore.cluster import Cluster
from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.inter_op.result import SweepPoint
from alpa_explore.profiling.stage_costs import StageCosts

if TYPE_CHECKING:
    from alpa_explore.plans.stage_details import StageDetails
    from alpa_explore.schedules.task import Schedule
    from alpa_explore.schedules.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """What the user asked of the planner."""

    num_microbatches: int
    delta: float
    num_layers: int
    solver: str
    boundaries: tuple[str, ...] = ()
    """Layer boundaries set by hand; empty when clustered."""
    pipeline: PipelineOptions = field(default_factory=PipelineOptions)
    baseline: str = ""
    """Where the plan is what people do by hand: which ("megatron (tp 4, dp 2, pp 2)"); empty for the planner's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """The model as the plan needs it when the graph is gone."""

    name: str
    recipe: str | None
    parameters: int
    model_flops: int
    """Forward and backward of one microbatch, recomputation not counted."""
    samples: int
    """In one microbatch."""
    tokens: int
    """In one microbatch."""
    precision: str
    optimizer: str
    rematerialization: bool
    content_key: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLayer:
    """A run of forward operators (see layering)."""

    index: int
    operators: tuple[str, ...]
    """Names of its forward operators, in order."""
    operator_flops: tuple[int, ...]
    operator_cut_bytes: tuple[int, ...]
    """For each of them the bytes that would cross a cut just behind it."""
    flops: int
    cut_bytes: int
    """C of Eq. 6: bytes made in this layer and read by forward operators outside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOperator:
    """An operator with the strategy that was chosen for it."""

    name: str
    op: str
    phase: str
    module: str
    layer: int
    strategy: str
    """Factor that each mesh axis divides, '-' for none."""
    inputs: tuple[str, ...]
    """Spec of each input as this operator reads it."""
    output: str
    """Spec of its (first) output."""
    outputs: tuple[str, ...]
    compute_seconds: float
    """For one microbatch (update operators: one iteration), without resharding."""
    communication_seconds: float
    """Resharding of its inputs."""
    communication: tuple[str, ...]
    """One line for each input that is resharded: 'input 0: RS0 → RR, all-gather axis 0, 8.39 MB'."""
    flops: int
    output_shape: tuple[int, ...]
    weight_half: bool = False
    """A backward operator that no other layer waits for: it leads only to gradients of weights."""
    gradient_bytes: float = 0.0
    """Of an update operator: what the gradient that it reads keeps on a device; 0 in a file of an earlier version."""
    optimizer_bytes: float = 0.0
    """Of an update operator: what its state keeps on a device."""
    axis_seconds: tuple[float, ...] = ()
    """What each microbatch pays for collectives on each mesh axis with more than one device: bringing its inputs (twice
    where it is computed again) and completing what leaves the stage; of an update, summing its gradient. Empty in a
    file of an earlier version."""
    stored: str = ""
    """Of an update: the spec in which its weight is stored between iterations; '' in a file of an earlier version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStage:
    """A run of layers on one submesh."""

    index: int
    layers: tuple[int, int]
    """First and last, inclusive."""
    submesh: tuple[int, int]
    logical_mesh: tuple[int, ...]
    devices: tuple[int, ...]
    """Device d is number d % M of node d // M."""
    latency_seconds: float
    """microbatch_seconds + iteration_seconds / B + receive_seconds."""
    microbatch_seconds: float
    iteration_seconds: float
    weight_bytes: float
    activation_bytes: float
    workspace_bytes: float
    microbatches_held: int
    """What the schedule holds at most: min(place from the end, B) for 1F1B."""
    solution_key: str
    """`StageCandidate.solution_key` of the candidate that was chosen."""
    operators: Sequence[PlanOperator]
    """In execution order: forward, backward, update. Empty after `replan` of a plan that was read from a file, where a
    stage's choice of strategies is not in the file."""
    receive_seconds: float = 0.0
    """What a microbatch waits for its inputs from other stages; 0 unless communication is counted."""

    @property
    def peak_bytes(self) -> float:
        """Memory of one of its devices."""
        return self.weight_bytes + self.microbatches_held * self.activation_bytes + self.workspace_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The figures at the top of the screen."""

    iteration_seconds: float
    t_max_seconds: float
    sum_latency_seconds: float
    bubble_fraction: float
    """Share of the iteration in which the average stage waits: 1 − Σ_i B·t_i / (S·T)."""
    peak_bytes_per_device: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What planning took."""

    solves: int
    distinct_solves: int
    cached_solves: int
    variables: int
    """ILP variables of all distinct problems before simplification."""
    constraints: int
    seconds: tuple[tuple[str, float], ...]
    """(pass, seconds), in order."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A complete plan. `costs` are kept so that another B is an evaluation and a rerun of the DP."""

    model: ModelSummary
    cluster: Cluster
    options: PlanOptions
    layers: tuple[PlanLayer, ...]
    stages: tuple[PlanStage, ...]
    predicted: Predicted
    t_max_sweep: tuple[SweepPoint, ...]
    statistics: Statistics
    costs: StageCosts = field(repr=False)
    warnings: tuple[str, ...] = ()
    details: StageDetails | None = field(default=None, repr=False, compare=False)
    """The problems and choices behind the stages; None for a plan that was read from a file."""

    @property
    def samples_per_second(self) -> float:
        """Training samples (sequences, images) a second."""
        return self.model.samples * self.options.num_microbatches / self.predicted.iteration_seconds

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second (equals samples for models without tokens)."""
        return self.model.tokens * self.options.num_microbatches / self.predicted.iteration_seconds

    @property
    def flops_per_second_per_device(self) -> float:
        """Model FLOP/s of one device; recomputation is not counted."""
        total = self.model.model_flops * self.options.num_microbatches
        return total / self.predicted.iteration_seconds / self.cluster.devices

    @property
    def flops_utilization(self) -> float:
        """MFU: the share of the device's peak in the model's precision."""
        return self.flops_per_second_per_device / self.cluster.device.peak(self.model.precision)

    @property
    def global_batch(self) -> int:
        """Samples of one iteration."""
        return self.model.samples * self.options.num_microbatches

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a plan file, whole or not at all; `load_plan` reads it. PlanFileError when it cannot be written."""
        from alpa_explore.plans.files import save_plan  # the file knows the plan, not the other way round

        save_plan(self, path)

    def timeline(self, schedule: str | Schedule = "1f1b", *, stages_per_submesh: int | None = None) -> Timeline:
        """One iteration, simulated task by task; raises as `plans.timeline.plan_timeline` does."""
        from alpa_explore.plans.timeline import plan_timeline  # the simulator takes longer to load than a plan

        return plan_timeline(self, schedule, stages_per_submesh=stages_per_submesh)
