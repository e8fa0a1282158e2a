"""The records of a plan: its options, model, layers, stages, operators and predicted figures, one dataclass each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from alpa_explore.inter_op.options import PipelineOptions
from alpa_explore.sharding.spec_constraint import SpecConstraint


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
    rematerialization: str = ""
    """'auto' where each stage chose which of its layers are rematerialised; empty where the model says it for all."""
    spec_constraints: tuple[SpecConstraint, ...] = ()
    """Specs that operators were pinned to, or kept from."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTensor:
    """A tensor that no operator of the stage makes, or that outlives a microbatch, and the spec chosen for it.

    Together with the operators these are all that was decided for a stage.
    """

    name: str
    role: str
    """'source': it comes from outside; 'weight': as it is stored; 'accumulator': the sum of its gradients."""
    spec: str


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
    rematerialized: tuple[int, ...] = ()
    """Its layers that hold only what enters them and run their forward operators again."""
    receive_seconds: float = 0.0
    """What a microbatch waits for its inputs from other stages; 0 unless communication is counted."""
    tensors: Sequence[PlanTensor] = ()
    """Sources, weights and accumulators; empty in a file of an earlier version."""
    tied_seconds: float = 0.0
    """Once an iteration: summing gradients of weights that earlier stages read too; 0 unless that is counted."""

    @property
    def activations_held_bytes(self) -> float:
        """Activations of all the microbatches that it holds."""
        return self.microbatches_held * self.activation_bytes

    @property
    def peak_bytes(self) -> float:
        """Memory of one of its devices."""
        return self.weight_bytes + self.activations_held_bytes + self.workspace_bytes


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedMicrobatches:
    """What another number of microbatches would do. Figures are None where no plan fits in memory."""

    num_microbatches: int
    samples: int
    """In one microbatch."""
    iteration_seconds: float | None
    stages: int | None = None
    fullest_stage: int | None = None
    """The stage whose devices hold most; the bytes are those of one of them."""
    weight_bytes: float | None = None
    held_bytes: float | None = None
    """Activations of all the microbatches that it holds."""
    workspace_bytes: float | None = None
    over_bytes: float | None = None
    """Where nothing fits: by how much the nearest thing would not."""

    @property
    def samples_per_second(self) -> float:
        """0 where no plan fits."""
        return self.num_microbatches * self.samples / self.iteration_seconds if self.iteration_seconds else 0.0

    @property
    def peak_bytes(self) -> float | None:
        """Memory of the fullest device; None where no plan fits."""
        if self.weight_bytes is None or self.held_bytes is None or self.workspace_bytes is None:
            return None
        return self.weight_bytes + self.held_bytes + self.workspace_bytes
